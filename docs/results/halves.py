"""Which labels to pretrain on: what rules pick for twenty binary targets, beside what is best.

Validation errors in percent after finetuning, and scores of the pretrained features for the target (`transferability`,
on the training images of pretraining). The label space `target` has the target's own labels, the baseline. The targets
share backbones: intervals are a bootstrap over targets.
"""

import numpy as np
import pandas as pd
from tables import read

FINEST, OWN = "manual-class", "target"
SCORES = ("logme", "h_score", "leep", "nce")
DRAWS = 10_000


def table(column: str) -> pd.DataFrame:
    """Means over draws of the error or of a score: a row per target and a column per label space."""
    rows = read("cifar10_halves")
    target, score = rows["key"].str.split("/", expand=True).to_numpy().T
    rows["target"], rows["of"] = rows["transfer"].fillna(pd.Series(target)), pd.Series(score).fillna("error")
    own = rows["network"] == rows["target"]
    kept = rows.assign(space=rows["space"].mask(own, OWN))[own | (rows["network"] == "shared")]
    return kept[kept["of"] == column].pivot_table(index="target", columns="space", values="value", sort=False)


def bootstrap(values: pd.Series) -> tuple[float, float]:
    """The 95 % interval of a mean over targets."""
    rng = np.random.default_rng(0)
    means = values.to_numpy()[rng.integers(len(values), size=(DRAWS, len(values)))].mean(1)
    return tuple(np.quantile(means, [0.025, 0.975]))


def gains() -> pd.DataFrame:
    """What each label space gains against the target's own labels, in points: a row per target."""
    errors = table("error")
    return errors.drop(columns=OWN).rsub(errors[OWN], axis=0)


def regrets() -> pd.DataFrame:
    """The error of what a rule picks minus the least of all, in points: a row per target, a column per rule.

    `not random` is the mean over label spaces that are not drawn by chance, the target's own included; `others` picks
    what has the least mean error on the other targets.
    """
    errors = table("error")
    picks = {score: table(score)[errors.columns].idxmax(axis=1) for score in SCORES}
    picks["finest"] = pd.Series(FINEST, index=errors.index)
    picks["own"] = pd.Series(OWN, index=errors.index)
    picks["others"] = pd.Series({one: errors.drop(index=one).mean().idxmin() for one in errors.index})
    found = {rule: pd.Series({one: errors.loc[one, space] for one, space in of.items()}) for rule, of in picks.items()}
    found["not random"] = errors[[space for space in errors if not space.startswith("random")]].mean(axis=1)
    return pd.DataFrame(found).sub(errors.min(axis=1), axis=0)
