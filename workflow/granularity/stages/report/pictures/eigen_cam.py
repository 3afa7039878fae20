"""Eigen-CAM of the last feature map, as in Fig. 1 and 3 of Pan, Zhou and Yan (2022): over evenly spaced images, from
violet (nothing) to yellow (the largest value of the image). Regions: the mean number of connected parts at half of the
largest value or more.
"""

import numpy as np
from matplotlib import colormaps
from PIL import Image

from granularity.data.shards import pictures
from granularity.stages.report import drawing
from granularity.stages.report.snapshots import Snapshot, grid, moves

ACROSS, TILE, GAP = 10, 64, 4  # images; pixels


@drawing.styled()
def draw(trainings: list[list[Snapshot]], name: str) -> str:
    first = trainings[0][0]
    split = max((key.split("/")[0] for key in first.files), key=lambda split: split == "val")
    rows = first.array(f"{split}/rows")
    chosen = np.linspace(0, len(rows) - 1, min(ACROSS, len(rows))).astype(int)
    images = pictures(*first.condition.of("pixels"))
    classes = first.condition.samples.table("samples.parquet", [first.ranks[-1]])[first.ranks[-1]].iloc[rows[chosen]]
    messages = [f"number of regions {moves(part, f'{split}/regions')}" for part in trainings]
    words = [[f"{one.state}\n{one.values[f'{split}/regions']:.2f} regions" for one in part] for part in trainings]
    figure, blocks = grid(trainings, messages, [["image", *part] for part in words], 1, (4.4, 0.43), 0.1, 0.06)
    for axes, snapshots in zip(blocks, trainings, strict=True):
        strips = []
        for one in snapshots:  # a finetuned network may see another crop
            tiles = [_tile(images[row], int(one.array(f"{split}/side")[0])) for row in rows[chosen]]
            maps = one.array(f"{split}/maps")[chosen]
            strips += [] if strips else [tiles]
            strips.append([_over(*both) for both in zip(tiles, maps, strict=True)])
        for axis, strip in zip(axes.flat, strips, strict=True):
            axis.imshow(np.concatenate([np.pad(tile, ((0, 0), (0, GAP), (0, 0))) for tile in strip], axis=1))
            axis.set_anchor("W")
            axis.spines[:].set_visible(False)
        for place, words in enumerate(classes.astype("str")):
            style = {"ha": "center", "va": "bottom", "fontsize": 6, "parse_math": False}
            axes[0, 0].text(place * (TILE + GAP) + TILE / 2, -GAP, drawing.shorten(words, 10), **style)
    return drawing.svg(figure, name, "Eigen-CAM of some images, one row per network")


def _tile(image: np.ndarray, side: int) -> np.ndarray:
    """Return the centre of an image as evaluation sees it, opaque RGBA: float64 [TILE, TILE, 4], 0 to 1."""
    edge = (len(image) - side) // 2
    centre = Image.fromarray(image[edge : edge + side, edge : edge + side].squeeze()).convert("RGBA")
    return np.asarray(centre.resize((TILE, TILE), Image.Resampling.NEAREST)) / 255


def _over(tile: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Lay the positive part of a map [H, W] over a tile in grey."""
    positive = np.maximum(found, 0) / max(found.max(), 1e-12)
    smooth = Image.fromarray(positive.astype(np.float32)).resize((TILE, TILE), Image.Resampling.BILINEAR)
    grey = np.dstack([tile[..., :3].mean(2)] * 3 + [tile[..., 3]])
    return (grey + colormaps["inferno"](np.asarray(smooth))) / 2
