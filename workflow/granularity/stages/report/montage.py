"""Images of some clusters of a k-means label space, one row per cluster."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from granularity.data.shards import Shards
from granularity.stages.report.conditions import ConditionResults, Space
from granularity.stages.report.drawing import RC, shorten, svg
from granularity.store.artifacts import Artifact

ACROSS = 12  # images per row
TILE = 64  # px at most: enough for the eye, small enough for the page


@dataclass(frozen=True)
class Row:
    """One cluster: `members` are rows of the sample table, `composition` the share of each class of a rank."""

    cluster: int
    size: int
    superclass: str | None
    members: np.ndarray
    composition: dict[str, float]


def choose(conditions: list[ConditionResults]) -> tuple[ConditionResults, Space] | None:
    """The label space to show: the first of a k-means per superclass, else over the whole set, else of any clustering.

    Each of its classes is a cluster: it is read from one clustering.
    """
    found = [
        (condition, space)
        for condition in conditions
        for space in condition.spaces
        if len(space.params.get("clusterings", ())) == 1 and _clustering(condition, space) is not None
    ]
    first = {"kmeans_superclass": 0, "kmeans": 1}
    return min(found, key=lambda one: first.get(one[1].family, 2), default=None)


def _clustering(condition: ConditionResults, space: Space) -> Artifact | None:
    name = space.params["clusterings"][0]
    return next((one for one in condition.of("cluster") if one.manifest["options"]["clustering"] == name), None)


def rows(condition: ConditionResults, space: Space, count: int) -> list[Row]:
    """Up to `count` clusters, spread evenly over the order of their sizes: large, middling and small ones."""
    clustering = _clustering(condition, space)
    finest = condition.ranks[-1]
    samples = condition.samples.table("samples.parquet", ["sample_id", finest])
    clusters = clustering.table("clusters.parquet")
    clusters = clusters[clusters["size"] > 0].sort_values(["size", "cluster"], ascending=[False, True])
    picked = np.unique(np.linspace(0, len(clusters) - 1, min(count, len(clusters))).round().astype(int))
    at = pd.Series(np.arange(len(samples)), index=samples["sample_id"])
    assignment = clustering.table("assignment.parquet")
    found = []
    for item in clusters.iloc[picked].itertuples():
        members = at[assignment.loc[assignment["cluster"] == item.cluster, "sample_id"]].to_numpy()
        shares = samples[finest].iloc[members].value_counts(normalize=True)
        shares = shares[shares > 0]  # a category has a count of zero where no image of it is in the cluster
        superclass = None if pd.isna(item.superclass) else str(item.superclass)
        found.append(Row(int(item.cluster), int(item.size), superclass, members, shares.to_dict()))
    return found


@mpl.rc_context(RC)
def draw(found: list[Row], pixels: np.ndarray | Shards) -> str:
    """The rows as an SVG: what the cluster is, its first images in the order of the sample table, what it holds.

    Args:
        found: the clusters.
        pixels: the image of each row of the sample table, uint8 [H, W, C].
    """
    left, tile, right, height = 1.75, 0.32, 2.3, 0.40
    width = left + ACROSS * tile + right
    figure = Figure(figsize=(width, height * len(found) + 0.3))
    full = figure.get_figheight()
    heads = ("Cluster", f"Its first {ACROSS} images", "Composition")
    for x, text in zip((0.05, left, left + ACROSS * tile + 0.12), heads, strict=True):
        figure.text(x / width, 1 - 0.13 / full, text, va="center", fontweight="bold", fontsize=8)
    for i, row in enumerate(found):
        middle = 1 - (0.3 + height * (i + 0.5)) / full
        strip = _strip(pixels, row.members[:ACROSS])
        shown = min(len(row.members), ACROSS)
        box = (left / width, middle - tile / 2 / full, shown * tile / width, tile / full)
        axis = figure.add_axes(box)
        axis.imshow(strip, cmap="gray", vmin=0, vmax=255, aspect="auto")
        axis.set_axis_off()
        count = f"{row.size:,} image{'' if row.size == 1 else 's'}"
        name = f"{row.cluster}" if row.superclass is None else f"{row.cluster}, in {shorten(row.superclass, 16)}"
        text = {"va": "center", "fontsize": 8, "parse_math": False}
        figure.text(0.05 / width, middle, f"{name}\n{count}", linespacing=1.15, **text)
        figure.text((left + ACROSS * tile + 0.12) / width, middle, _composition(row), linespacing=1.15, **text)
    return svg(figure, "montage", "Images of some clusters, one row per cluster")


def _strip(pixels: np.ndarray | Shards, members: np.ndarray) -> np.ndarray:
    """The images side by side, uint8 [H, n*W] or [H, n*W, 3], with a thin gap between them."""
    tiles = [_small(np.asarray(pixels[member])) for member in members]
    gap = max(1, tiles[0].shape[1] // 16)
    tiles = [np.pad(tile, ((0, 0), (0, gap), (0, 0)), constant_values=255) for tile in tiles]
    return np.concatenate(tiles, axis=1).squeeze()


def _small(image: np.ndarray) -> np.ndarray:
    if max(image.shape[:2]) <= TILE:
        return image
    picture = Image.fromarray(image.squeeze())
    picture.thumbnail((TILE, TILE))
    return np.asarray(picture).reshape(picture.height, picture.width, -1)


def _composition(row: Row, most: int = 3) -> str:
    parts = [f"{shorten(name, 10)}: {_percent(share)}" for name, share in row.composition.items()]
    if len(parts) > most:
        rest = 1 - sum(list(row.composition.values())[:most])
        parts = [*parts[:most], f"{len(parts) - most} more: {_percent(rest)}"]
    lines = [", ".join(parts[:2]), ", ".join(parts[2:])]
    return "\n".join(filter(None, lines))


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "<1%"
