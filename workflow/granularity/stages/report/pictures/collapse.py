"""Distances between classes over training, as in Fig. 3 of Yang, Steinhardt and Hu (2023): mean squared distances of
features between images of two classes, divided by their mean over different classes. Lines separate the classes of a
coarser rank. R1: distances between different classes within the lines, over distances within a class; for shuffled
labels, the largest of 20 draws.
"""

import numpy as np

from granularity.stages.report import drawing
from granularity.stages.report.snapshots import Snapshot, grid, moves, square


@drawing.styled()
def draw(trainings: list[list[Snapshot]], name: str) -> str:
    about = [_classes(part[0]) for part in trainings]
    matrices = [[one.array(key) for one in part] for part, (key, *_) in zip(trainings, about, strict=True)]
    matrices = [[one / (one[~np.eye(len(one), dtype=bool)].mean() or 1) for one in part] for part in matrices]
    across, largest = max(map(len, matrices)), max(one.max() for part in matrices for one in part)
    messages = [f"R1 {moves(part, key)}" if key else "" for part, (*_, key) in zip(trainings, about, strict=True)]
    figure, blocks = grid(trainings, messages, [[""]] * len(about), across, square(across, 1.3), 0.15, 0.3)
    for (axes,), snapshots, part, (_, names, above, ratio) in zip(blocks, trainings, matrices, about, strict=True):
        order = above.argsort(kind="stable")
        for axis in axes[len(part) :]:
            axis.set_visible(False)
        for axis, one, matrix in zip(axes, snapshots, part, strict=False):
            image = axis.imshow(matrix[np.ix_(order, order)], cmap="viridis", vmin=0, vmax=largest)
            for edge in np.flatnonzero(np.diff(above[order])) + 0.5:
                axis.axhline(edge, color="white", linewidth=0.6)
                axis.axvline(edge, color="white", linewidth=0.6)
            axis.set_title(one.state, fontsize=7.5, fontweight="normal", parse_math=False)
            axis.set_xlabel(f"R1 = {one.values[ratio]:.2f}" if ratio else "", fontsize=7.5)
        if len(names) <= 12:  # further names would overlap
            axes[0].set_yticks(range(len(names)), [drawing.shorten(names[i], 12) for i in order], parse_math=False)
            axes[0].tick_params(axis="y", labelsize=6, length=0, pad=2)
        figure.colorbar(image, cax=axis.inset_axes((1.07, 0, 0.05, 1))).ax.tick_params(labelsize=7)
    return drawing.svg(figure, name, "Distances between classes over training")


def _classes(one: Snapshot) -> tuple[str, list[str], np.ndarray, str | None]:
    """Return the key of the finest rank's distances, on the training split if that was measured; its classes, in the
    order of the measure; the number of each one's coarser class; and the key of R1, or None if no rank is coarser.
    """
    keys = [key.split("/")[:2] for key in one.files if key.endswith("/distances")]
    split, rank = max(keys, key=lambda key: (key[0] == "train", one.ranks.index(key[1])))
    coarser = [key for key in one.ranks if f"{split}/{key}/{rank}/r1" in one.values]
    coarse = one.condition.target if one.condition.target in coarser else (coarser or [None])[-1]
    table = one.condition.samples.table("samples.parquet", ["split", *one.condition.ranks]).astype("str")
    names = sorted(set.intersection(*(set(table.loc[table["split"] == part, rank]) for part in ("train", split))))
    parents = table.drop_duplicates(rank).set_index(rank).loc[names]
    above = np.unique(parents[coarse], return_inverse=True)[1] if coarse else np.zeros(len(names), dtype=int)
    return f"{split}/{rank}/distances", names, above, f"{split}/{coarse}/{rank}/r1" if coarse else None
