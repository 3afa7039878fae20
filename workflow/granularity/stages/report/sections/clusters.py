"""Images of some clusters, and the encoder whose embedding is clustered: how it was trained, what it has seen."""

from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from granularity.data.shards import Shards, pictures
from granularity.stages.report import drawing, series
from granularity.stages.report.conditions import ConditionResults, ShownSpace
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part
from granularity.store.artifact import Artifact

HEADING = "Clusters and encoder"
ACROSS = 12  # images per row
TILE = 64  # px at most: enough for the eye, small enough for the page
FIRST = {"kmeans_superclass": 0, "kmeans": 1}  # families whose clusters are shown before those of others


def build(loaded: Loaded) -> Part | None:
    conditions, drawn, values = loaded.conditions, {}, {"encoder": encoder_of(loaded.conditions)}
    values["clustered"] = any(condition.of("cluster") for condition in conditions)
    losses = {one.label: each.table("history.parquet") for one in conditions for each in one.of("encoder")}
    chosen = choose(conditions)
    if chosen is not None and loaded.options.montage_clusters > 0 and chosen[0].of("pixels"):
        condition, space, clustering = chosen
        found = rows(condition, clustering, loaded.options.montage_clusters)
        drawn["montage"] = montage(found, pictures(*condition.of("pixels")))
        values |= {"of": f"{space.name} ({condition.label})", "rank": condition.ranks[-1]}
    if losses:
        drawn["encoder_loss"] = encoder_loss(losses)
    return Part(figures=drawn, values=values) if values["encoder"] or drawn else None


def encoder_of(conditions: list[ConditionResults]) -> dict[str, Any] | None:
    """What the images were embedded with; None where nothing was embedded.

    `pretrained`: its weights; `captions`: how it was trained here (None: elsewhere), and the `rank` that they name.
    """
    for condition in (one for one in conditions if one.of("embed")):
        options = condition.of("embed")[0].manifest["options"]  # without captions: those are the encoder's
        captions = next((one.manifest["options"]["captions"] for one in condition.of("encoder")), None)
        fine = captions is not None and captions["granularity"] == "fine"
        rank = condition.ranks[-1] if fine else condition.target
        return {"model": options["model"], "pretrained": options["pretrained"], "captions": captions, "rank": rank}
    return None


@mpl.rc_context(drawing.RC)
def encoder_loss(histories: dict[str, pd.DataFrame]) -> str:
    """Contrastive loss of the encoder against the epoch, training and validation, one panel per condition."""
    figure, axes = drawing.two_across(len(histories), 0.4, 2.2, sharey=True)
    for place, (axis, (label, history)) in enumerate(zip(axes, histories.items(), strict=True)):
        for split, one, line in (("train", "manual", "-"), ("val", "random", "--")):
            words = {"train": "training", "val": "validation"}[split]
            axis.plot("epoch", f"{split}_loss", line, data=history, color=series.describe(one).colour, label=words)
        axis.set(title=label, xlabel="Epoch", ylabel="" if place % 2 else "Contrastive loss (nats)")
        axis.grid(axis="y")
        axis.legend()
    return drawing.svg(figure, "encoder_loss", "Training and validation loss of the contrastive encoder by epoch")


# ---------------------------------------------------------------- images of clusters


class Row(NamedTuple):
    """One cluster: `members` are rows of the sample table, `composition` the share of each class of a rank."""

    cluster: int
    size: int
    superclass: str | None
    members: np.ndarray
    composition: dict[str, float]


def choose(conditions: list[ConditionResults]) -> tuple[ConditionResults, ShownSpace, Artifact] | None:
    """The label space to show, with its clustering: of those that are read from one, so that each class is a cluster.

    It is the first of a k-means per superclass, else over the whole set, else of any clustering.
    """
    found = []
    for condition in conditions:
        made = {one.manifest["options"]["clustering"]: one for one in condition.of("cluster")}
        for space in condition.spaces:
            clusterings = [made.get(name) for name in space.params.get("clusterings", ())]
            if len(clusterings) == 1 and clusterings[0] is not None:
                found.append((condition, space, clusterings[0]))
    return min(found, key=lambda one: FIRST.get(one[1].family, len(FIRST)), default=None)


def rows(condition: ConditionResults, clustering: Artifact, count: int) -> list[Row]:
    """Up to `count` clusters, spread evenly over the order of their sizes: large, middling and small ones."""
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


@mpl.rc_context(drawing.RC)
def montage(found: list[Row], pixels: np.ndarray | Shards) -> str:
    """The rows as an SVG: what the cluster is, its first images in the order of the sample table, what it holds.

    `pixels`: the image of each row of the sample table, uint8 [H, W, C].
    """
    left, tile, right, height = 1.75, 0.32, 2.3, 0.40
    width, full = left + ACROSS * tile + right, height * len(found) + 0.3
    figure = Figure(figsize=(width, full))
    columns = [x / width for x in (0.05, left, left + ACROSS * tile + 0.12)]
    for x, text in zip(columns, ("Cluster", f"Its first {ACROSS} images", "Composition"), strict=True):
        figure.text(x, 1 - 0.13 / full, text, va="center", fontweight="bold", fontsize=8)
    for i, row in enumerate(found):
        middle = 1 - (0.3 + height * (i + 0.5)) / full
        shown = row.members[:ACROSS]
        axis = figure.add_axes((columns[1], middle - tile / 2 / full, len(shown) * tile / width, tile / full))
        axis.imshow(_strip(pixels, shown), cmap="gray", vmin=0, vmax=255, aspect="auto")
        axis.set_axis_off()
        name = f"{row.cluster}" + ("" if row.superclass is None else f", in {drawing.shorten(row.superclass, 16)}")
        size = f"{row.size:,} image{'' if row.size == 1 else 's'}"
        for x, text in ((columns[0], f"{name}\n{size}"), (columns[2], _composition(row))):
            figure.text(x, middle, text, va="center", fontsize=8, parse_math=False, linespacing=1.15)
    return drawing.svg(figure, "montage", "Images of some clusters, one row per cluster")


def _strip(pixels: np.ndarray | Shards, members: np.ndarray) -> np.ndarray:
    """The images side by side, uint8 [H, n*W] or [H, n*W, 3], with a thin gap between them."""
    tiles = []
    for member in members:
        picture = Image.fromarray(np.asarray(pixels[member]).squeeze())
        picture.thumbnail((TILE, TILE))
        image = np.asarray(picture).reshape(picture.height, picture.width, -1)
        gap = max(1, picture.width // 16)
        tiles.append(np.pad(image, ((0, 0), (0, gap), (0, 0)), constant_values=255))
    return np.concatenate(tiles, axis=1).squeeze()


def _composition(row: Row, most: int = 3) -> str:
    def percent(share: float) -> str:
        return f"{share:.0%}" if share >= 0.005 else "<1%"

    first, more = list(row.composition.items())[:most], len(row.composition) - most
    parts = [f"{drawing.shorten(name, 10)}: {percent(share)}" for name, share in first]
    parts += [f"{more} more: {percent(1 - sum(share for _, share in first))}"] if more > 0 else []
    return "\n".join(filter(None, (", ".join(parts[:2]), ", ".join(parts[2:]))))
