"""Filters of unit length, as in Fig. 17 to 21 of Shi, Wei and Liang (2022): in the plane by classical scaling of their
distances, for each layer and time separately. Coloured are the two clusters of the last time, also at earlier times.
Below: the cosine between the centres of the two clusters of the same time (−1: opposed).
"""

import numpy as np

from granularity.stages.report import drawing
from granularity.stages.report.snapshots import COLOURS, Snapshot, evenly, grid, moves, square


@drawing.styled()
def draw(trainings: list[list[Snapshot]], name: str) -> str:
    layers = [[key.removesuffix("/side") for key in part[-1].files if key.endswith("/side")] for part in trainings]
    layers = [[names[i] for i in evenly(len(names))] for names in layers]
    across = max(map(len, layers))
    last = [(part, names[-1]) for part, names in zip(trainings, layers, strict=True)]
    messages = [f"cosine in {key.partition('/')[2][-16:]} {moves(part, f'{key}/between')}" for part, key in last]
    labels = [[one.state for one in part] for part in trainings]
    figure, blocks = grid(trainings, messages, labels, across, square(across, 1.1), 0.15, 0.2)
    for axes, snapshots, names in zip(blocks, trainings, layers, strict=True):
        for axis in axes[:, len(names) :].flat:
            axis.set_visible(False)
        for axis, layer in zip(axes[0], names, strict=False):
            axis.set_title(drawing.shorten(layer.partition("/")[2], 16), fontsize=7, fontweight="normal")
        for row, one in zip(axes, snapshots, strict=True):
            for axis, layer in zip(row, names, strict=False):
                places, side = one.array(f"{layer}/mds"), snapshots[-1].array(f"{layer}/side")
                for sign, colour in ((0, COLOURS[-1]), (1, COLOURS[1]), (-1, COLOURS[0])):
                    axis.plot(*places[side == sign].T, "o", color=colour, markersize=2.2, markeredgewidth=0)
                reach = 1.1 * max(np.nanmax(np.abs(other.array(f"{layer}/mds"))) for other in snapshots)
                axis.set(xlim=(-reach, reach), ylim=(-reach, reach))
                axis.set_xlabel(f"{one.values[f'{layer}/between']:.2f}".replace("-", "−"), fontsize=7, labelpad=1)
    return drawing.svg(figure, name, "Normalised filters in the plane, over training")
