"""How well what is known of label spaces before training has predicted what they gained: `docs/findings/evidence.csv`.

Each row of the evidence describes one label space in one run: properties measured before training, and `gain`, the
validation error of the target's own labels minus that of the label space, in points. Printed is Spearman's rank
correlation of each property with the gain: within each data set, and the mean over data sets whose sign (is more
better, or less?) is taken from the others. Run it in the repository: `python
docs/findings/predicting_gains.py`. What was predicted beforehand is in `studies/recommend/predictions.yaml`.
"""

from pathlib import Path

import numpy as np
import pandas as pd

GROUP = ["data", "configuration", "condition", "network", "transfer"]
PROPERTIES = ["G", "nmi_finest", "evenness", "refinement", "target_information", "finest_information", "compactness"]
PROPERTIES += ["signal", "weakest", "random", "by_chance"]
FEWEST = 4  # label spaces in a group that is ranked


def correlations(evidence: pd.DataFrame) -> pd.DataFrame:
    """Rank correlations with the gain, mean over groups: a row per data set, a column per property; unknown is 0."""
    evidence = evidence.assign(by_chance=evidence["meaningless"].astype(float))
    large = evidence.groupby(GROUP)["space"].transform("size") >= FEWEST
    found = evidence[large & evidence["gain"].notna()].groupby(GROUP)[[*PROPERTIES, "gain"]].apply(_of_group)
    return found.groupby("data").mean()


def _of_group(rows: pd.DataFrame) -> pd.Series:
    known = rows[PROPERTIES].astype(float).round(9).dropna(axis=1)
    known = known.reindex(columns=PROPERTIES, fill_value=0.0)  # a property that one of them lacks ranks none
    return known.rank().corrwith(rows["gain"].rank()).fillna(0.0)


def left_out(within: pd.DataFrame) -> pd.Series:
    """The mean over data sets, the sign of each taken from the others."""
    signs = np.sign(within.sum() - within).replace(0, 1)
    return (signs * within).mean().sort_values(ascending=False)


if __name__ == "__main__":
    evidence = pd.read_csv(Path(__file__).with_name("evidence.csv"))
    within = correlations(evidence)
    print(within.round(2).to_string(), left_out(within).round(2).to_string(), sep="\n\n")
