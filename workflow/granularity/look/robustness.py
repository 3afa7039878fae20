"""Effective robustness: accuracy under a shift beyond that of reference networks with equal accuracy without the shift.

It is a network's accuracy on shifted images minus the value of a line through reference networks at its in-distribution
accuracy, both on the logit scale (Taori et al. 2020). If several sets are in distribution, the line is a plane over the
accuracies on all of them (Shi et al., arXiv 2302.01381).
"""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from scipy import special

from granularity.base.errors import GranularityError

LEVELS = ["repetition", "arm"]


def effective_robustness(
    errors: pd.DataFrame, references: Collection[str], within: Sequence[str] = ("val",)
) -> pd.DataFrame:
    """Return the effective robustness of each network in points: the rows of `errors`, one column per shift.

    `errors` are in percent, with a row per network (levels `repetition` and `arm`) and a column per split; the splits
    in `within` are in distribution. Each repetition has its own line, fitted by least squares to its networks of the
    arms in `references`, so that repetitions stay independent. Raises GranularityError: too few references, or an
    accuracy of 0 or 1, which has no logit.
    """
    parts = []
    for repetition, table in errors.reset_index().groupby("repetition", sort=False):
        right = 1 - table.set_index(LEVELS) / 100
        if not ((right > 0) & (right < 1) | right.isna()).all(axis=None):
            raise GranularityError(f"{repetition}: an accuracy is 0 or 1 and has no logit")
        before, after = right[list(within)], right.drop(columns=list(within))
        is_reference = right.index.get_level_values("arm").isin(references)
        axes = np.column_stack([np.ones(len(right)), special.logit(before)])
        if np.linalg.matrix_rank(axes[is_reference]) < axes.shape[1]:
            raise GranularityError(f"{repetition}: too few references for a line over {', '.join(within)}")
        line = np.linalg.lstsq(axes[is_reference], special.logit(after[is_reference]))[0]
        parts.append(100 * (after - special.expit(axes @ line)))
    return pd.concat(parts)
