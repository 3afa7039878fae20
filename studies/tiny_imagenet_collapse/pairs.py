"""How far classes of one coarse class lie apart, a row per pair and backbone, from the measure `collapse`:

cd studies/tiny_imagenet_collapse; python pairs.py ../../results/tiny-imagenet-collapse/labels-* > pairs.csv

`ratio` is R_ij = D_ij / ((D_ii + D_jj) / 2) of training images after the last epoch (Yang, Steinhardt and Hu 2023).
"""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np

from granularity.look import api


def main(folders: list[Path]) -> None:
    print("labels,run,epoch,coarse,first,second,ratio")
    for folder in folders:
        ((_, samples),) = api.of_kinds(folder, "samples")
        coarse, fine = samples.facts["ranks"][-2:]
        table = samples.table("samples.parquet", ["split", coarse, fine]).query("split == 'train'")
        of = table.drop_duplicates(fine).set_index(fine)[coarse].astype(str)
        names = np.unique(table[fine].astype(str))
        for _, made in api.of_kinds(folder, "measure"):
            for file in sorted((made.folder / "arrays").glob(f"*/train/{fine}/distances.npy")):
                run, _, epoch = file.parts[-4].partition("@")
                found = made.array(str(file.relative_to(made.folder)))
                for i, j in combinations(range(len(names)), 2):
                    if of[names[i]] == of[names[j]]:
                        ratio = 2 * found[i, j] / (found[i, i] + found[j, j])
                        print(
                            f"{folder.name.partition('-')[2]},{run},{epoch},{of[names[i]]},{names[i]},{names[j]},{ratio:.4f}"
                        )


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]])
