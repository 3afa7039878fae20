"""Which labels to pretrain on: what rules pick for twenty binary targets, beside what is best.

    python docs/results/halves.py results/cifar10-halves/draw-*    # writes studies/cifar10_halves/results.csv

A row per base seed, target and label space: validation error in percent after finetuning, and scores of the pretrained
features for the target (`transferability`, on the training images of pretraining). The label space
`target` has the target's own labels, the baseline. The targets share backbones: intervals are a bootstrap over targets.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from tables import table_of

TABLE = table_of("cifar10_halves")
FINEST, OWN = "manual-class", "target"
SCORES = ("logme", "h_score", "leep", "nce")
DRAWS = 10_000


def collected(folder: Path) -> pd.DataFrame:
    """Of one run of studies/cifar10_halves/study.yaml, whose name ends in its draw."""
    errors = pd.read_csv(folder / "report/tables/backbones.csv").dropna(subset="transfer")
    values = [
        pd.read_parquet(file).merge(pd.read_parquet(file.with_name("runs.parquet")), on="run")
        for file in sorted(folder.glob("train-*/measure/transferability/*/*/values.parquet"))
    ]
    scores = pd.concat(values)
    scores[["transfer", "score"]] = scores["key"].str.split("/", expand=True)
    wide = scores.pivot(index=["network", "space", "transfer"], columns="score", values="value").reset_index()
    found = errors.merge(wide, on=["network", "space", "transfer"])
    space = found["space"].mask(found["network"] == found["transfer"], OWN)
    found = found.assign(base_seed=int(folder.name.rpartition("-")[2]), target=found["transfer"], space=space)
    return found[["base_seed", "target", "space", "error", *SCORES]]


def table(column: str) -> pd.DataFrame:
    """Means over base seeds: a row per target and a column per label space."""
    return pd.read_csv(TABLE).pivot_table(index="target", columns="space", values=column, sort=False)


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


if __name__ == "__main__":
    found = pd.concat([collected(Path(folder)) for folder in sorted(sys.argv[1:])])
    found.to_csv(TABLE, index=False, float_format="%.6g", lineterminator="\n")
