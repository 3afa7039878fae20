"""Errors by hardness of the image, one row per draw, label space, kind of judges and bin:

    python studies/cifar10_hardness_mixed/mixed.py > studies/cifar10_hardness_mixed/results.csv

Needs `results/` of `studies/cifar10_pairings/study.yaml`. The judges of a draw are the networks of the five others: of
both label spaces (predicted), or of one of them (to see how much the answer depends on the judges).
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.append("studies/cifar10_hardness")
from hardness import wrong

ARMS = ("target", "manual-class")
JUDGES = {"both": ARMS, "target": ARMS[:1], "class": ARMS[1:]}
BINS = {10: ((0, 0), (1, 3), (4, 6), (7, 10)), 5: ((0, 0), (1, 2), (3, 5))}  # by number of judges


def main() -> None:
    folders = sorted(Path("results/cifar10-pairings").glob("draw-*"))
    of = {one.name: {space: series for space, _, series in wrong(one, ARMS)} for one in folders}
    print("judges,draw,space,hardness,images,wrong")
    for kind, spaces in JUDGES.items():
        for draw, own in of.items():
            judges = pd.concat([of[other][space] for other in of if other != draw for space in spaces], axis=1)
            hardness = judges.sum(axis=1)
            for space, one in own.items():
                for low, high in BINS[judges.shape[1]]:
                    inside = one[hardness.reindex(one.index).between(low, high)]
                    words = f"{low} of" if low == high else f"{low} to {high} of"
                    print(f"{kind},{draw},{space},{words} {judges.shape[1]},{len(inside)},{inside.sum()}")


if __name__ == "__main__":
    sys.exit(main())
