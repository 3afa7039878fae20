"""The statistics of the report: differences between arms over independent backbones, and the verdicts that follow.

The rule and its reasons are in docs/predictions.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.95
NEGLIGIBLE = 0.05  # a gain of less than this share of the baseline's error is none
STANDINGS = {
    "better": "better",
    "worse": "worse",
    "open": "can’t be told",
    "untested": "no interval: fewer than two backbones, or no spread",
    "baseline": "the baseline",
}
ANSWERS = {"yes": "Yes", "no": "No", "open": "Can’t be told"}


class Difference(NamedTuple):
    """A mean difference over `pairs` of backbones, and its standard error; both NaN where there is none."""

    difference: float
    error: float
    pairs: int


def paired(one: pd.Series, other: pd.Series) -> Difference:
    """The difference of two arms, over the pretraining seeds that both have.

    Args:
        one, other: validation errors in percent, one per backbone, by pretraining seed.

    Returns:
        The mean of one - other. The error is NaN with one pair, and where all differ alike: no measure of chance.
    """
    differences = (one - other).dropna().to_numpy(float)
    n = len(differences)
    error = differences.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    # Equal differences leave a spread of rounding, not of chance.
    known = n > 1 and np.ptp(differences) > 1e-9
    return Difference(float(differences.mean()) if n else np.nan, float(error) if known else np.nan, n)


def interval(difference: float, error: float, pairs: int, comparisons: int) -> tuple[float, float]:
    """Student's interval of a mean difference, one of so many that hold together at `LEVEL` (Bonferroni)."""
    if np.isnan(error):
        return np.nan, np.nan
    reach = error * stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, pairs - 1)
    return float(difference - reach), float(difference + reach)


def standing(low: float, high: float) -> str:
    """A key of `STANDINGS`, from the interval of a difference of errors."""
    if np.isnan(low):
        return "untested"
    return "better" if high < 0 else "worse" if low > 0 else "open"


def answer(arms: pd.DataFrame) -> str:
    """A key of `ANSWERS`, from arms with `standing`, `low` (points) and `baseline_mean` (percent)."""
    if (arms["standing"] == "better").any():
        return "yes"
    excluded = arms["low"] > -NEGLIGIBLE * arms["baseline_mean"]  # False where there is no interval
    return "no" if len(arms) and excluded.all() else "open"
