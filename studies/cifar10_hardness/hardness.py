"""Errors by hardness of the image, one row per backbone:

    python studies/cifar10_hardness/hardness.py > studies/cifar10_hardness/results.csv

Needs `results/` of `studies/cifar10_budget/study.yaml` and of `cifar10_meaning`, six draws.
Hardness is independent of the backbones that are compared: how many networks of the other runs are wrong on the image.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.store.artifact import Artifact

ARMS, JUDGES, DRAWS = ("target", "manual-class"), ("target", "redrawn-100"), range(6)
BINS = {"0 of 12": (0, 0), "1 to 4 of 12": (1, 4), "5 to 8 of 12": (5, 8), "9 to 12 of 12": (9, 12)}


def wrong(run: Path, spaces: tuple[str, ...]) -> Iterator[tuple[str, int, pd.Series]]:
    """Label space, pretraining seed, and whether the finetuned network is wrong: bool, by `sample_id`."""
    samples = Artifact.open(run / "train-10000/samples").table("samples.parquet")
    truth = samples.set_index("sample_id")["kind"].astype(str)
    for space in spaces:
        for folder in sorted(run.glob(f"train-10000/finetune/*/*/{space}")):
            made = Artifact.open(folder)
            said = made.table("predictions.parquet").set_index("sample_id")
            names = made.table("classes.parquet")["name"]
            for one in made.table("runs.parquet").itertuples():
                words = names.to_numpy()[said[one.run_id]]
                yield space, one.pretrain_seed, pd.Series(words != truth[said.index], said.index)


def main() -> None:
    judged = [one for draw in DRAWS for *_, one in wrong(Path(f"results/cifar10-meaning/draw-{draw}"), JUDGES)]
    hardness = pd.concat(judged, axis=1).sum(axis=1)
    print("space,pretrain_seed,hardness,images,wrong")
    for space, seed, one in wrong(Path("results/cifar10-budget"), ARMS):
        for name, (low, high) in BINS.items():
            inside = one[hardness.reindex(one.index).between(low, high)]
            print(f"{space},{seed},{name},{len(inside)},{np.sum(inside)}")


if __name__ == "__main__":
    sys.exit(main())
