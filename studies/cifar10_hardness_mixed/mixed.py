"""Errors by hardness of the image, judged by networks of both kinds:

    python studies/cifar10_hardness_mixed/mixed.py > studies/cifar10_hardness_mixed/results.csv

Needs `results/` of `studies/cifar10_pairings/study.yaml`. A row per draw and per number of the five other draws'
target networks and of their class networks that are wrong on the image: how many images that are, and on how many of
them the draw's own target network and its class network are wrong.
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.append("studies/cifar10_hardness")
from hardness import wrong

ARMS = {"target": "target", "manual-class": "class"}


def main() -> None:
    folders = sorted(Path("results/cifar10-pairings").glob("draw-*"))
    found = {one.name: {ARMS[space]: series for space, _, series in wrong(one, tuple(ARMS))} for one in folders}
    tables = []
    for draw, own in found.items():
        others = [of for other, of in found.items() if other != draw]
        judged = pd.DataFrame({f"{arm}_judges": sum(of[arm].astype(int) for of in others) for arm in own})
        judged = judged.assign(images=1, **{f"{arm}_wrong": one.astype(int) for arm, one in own.items()})
        summed = judged.groupby(["target_judges", "class_judges"]).sum().reset_index()
        tables.append(summed.assign(draw=int(draw.removeprefix("draw-"))))
    pd.concat(tables).to_csv(sys.stdout, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
