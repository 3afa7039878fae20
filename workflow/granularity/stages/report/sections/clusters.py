"""Images of some clusters, and the encoder whose embedding is clustered: how it was trained, what it has seen."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from granularity.base.seeds import seed_of
from granularity.data.shards import Shards, pictures
from granularity.stages.report import drawing, series
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part

HEADING = "Clusters and encoder"
ACROSS = 12  # images per row
TILE = 64  # px at most: large enough to see, small enough for the page


def build(loaded: Loaded) -> Part | None:
    conditions, drawn, values = loaded.conditions, {}, {"encoder": encoder_of(loaded.conditions)}
    clusterings = [one for condition in conditions for one in condition.of("cluster")]
    values["clustered"] = bool(clusterings)
    losses = {one.label: encoder.table("history.parquet") for one in conditions for encoder in one.of("encoder")}
    seed = loaded.configuration.get("seeds", {}).get("base", 0)
    if clusters := rows(conditions, loaded.options.montage_clusters, seed):
        drawn["montage"] = montage(clusters)
        shown = {(row.condition, row.clustering) for row in clusters}
        values |= {"shown": len(shown), "clusterings": len(clusterings), "rank": conditions[0].ranks[-1]}
    if losses:
        drawn["encoder_loss"] = encoder_loss(losses)
    return Part(figures=drawn, values=values) if values["encoder"] or drawn else None


def encoder_of(conditions: list[ConditionResults]) -> dict[str, Any] | None:
    """Return what embedded the images: `pretrained`, or `captions` and their `rank`; None if nothing did."""
    for condition in (one for one in conditions if one.of("embed")):
        options = condition.of("embed")[0].manifest["options"]  # captions are among the encoder's options
        captions = next((one.manifest["options"]["captions"] for one in condition.of("encoder")), None)
        fine = captions is not None and captions["granularity"] == "fine"
        rank = condition.ranks[-1] if fine else condition.target
        file = options["embeddings"]
        about = {"model": options["model"], "pretrained": options["pretrained"]} if file is None else {"model": file}
        return {**about, "captions": captions, "rank": rank}
    return None


@drawing.styled()
def encoder_loss(histories: dict[str, pd.DataFrame]) -> str:
    """Plot the encoder's contrastive loss by epoch, training and validation, one panel per condition."""
    figure, axes = drawing.two_across(len(histories), 0.4, 2.2, sharey=True)
    for place, (axis, (label, history)) in enumerate(zip(axes, histories.items(), strict=True)):
        for split, family, line in (("train", "manual", "-"), ("val", "random", "--")):
            words = {"train": "training", "val": "validation"}[split]
            axis.plot("epoch", f"{split}_loss", line, data=history, color=series.describe(family).colour, label=words)
        axis.set(title=label, xlabel="Epoch", ylabel="" if place % 2 else "Contrastive loss (nats)")
        axis.grid(axis="y")
        axis.legend()
    return drawing.svg(figure, "encoder_loss", "Training and validation loss of the contrastive encoder by epoch")


# ---------------------------------------------------------------- images of clusters


class Row(NamedTuple):
    """One cluster: some of its images (rows of `pixels`); `composition` has the share of each class of a rank."""

    condition: str  # empty if all rows share a condition
    clustering: str
    cluster: int
    size: int
    superclass: str | None
    members: np.ndarray
    composition: dict[str, float]
    pixels: np.ndarray | Shards


def rows(conditions: list[ConditionResults], count: int, seed: int) -> list[Row]:
    """Return up to `count` clusters, divided evenly over clusterings, the largest first. The seed draws clusters in
    proportion to their sizes, and images in proportion to the classes of the finest rank.
    """
    candidates = [(owner, artifact) for owner in conditions if owner.of("pixels") for artifact in owner.of("cluster")]
    chosen = [i * len(candidates) // count for i in range(count)] if candidates else []
    several = len({candidates[i][0].name for i in chosen}) > 1
    montage_rows = []
    for i in dict.fromkeys(chosen):
        condition, clustering = candidates[i]
        name, finest = clustering.manifest["options"]["clustering"], condition.ranks[-1]
        rng = np.random.default_rng(seed_of(seed, "montage", condition.name, name))
        samples = condition.samples.table("samples.parquet", ["sample_id", finest])
        at = pd.Series(np.arange(len(samples)), index=samples["sample_id"])
        clusters = clustering.table("clusters.parquet").query("size > 0").reset_index(drop=True)
        share = clusters["size"] / clusters["size"].sum()
        picked = rng.choice(len(clusters), min(chosen.count(i), len(clusters)), replace=False, p=share)
        assignment = clustering.table("assignment.parquet")
        for item in clusters.iloc[picked].sort_values(["size", "cluster"], ascending=[False, True]).itertuples():
            members = at[assignment.loc[assignment["cluster"] == item.cluster, "sample_id"]].to_numpy()
            classes = samples[finest].iloc[members].astype("str")
            shares = classes.value_counts(normalize=True)
            shown = members[_drawn(shares.index.get_indexer(classes), rng)]
            superclass = None if pd.isna(item.superclass) else str(item.superclass)
            about = condition.name if several else "", name, int(item.cluster), int(item.size), superclass
            montage_rows.append(Row(*about, shown, shares.to_dict(), pictures(*condition.of("pixels"))))
    return montage_rows


def _drawn(classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return which images to show: evenly spaced from a random one on, in random order within classes."""
    order = rng.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    step = max(1.0, len(order) / ACROSS)
    return order[((np.arange(min(len(order), ACROSS)) + rng.random()) * step).astype(int)]


@drawing.styled()
def montage(found: list[Row]) -> str:
    """Draw the rows as SVG: the cluster, its images, and its composition."""
    left, tile, right, height = 1.75, 0.32, 2.3, 0.40
    width, full = left + ACROSS * tile + right, height * len(found) + 0.3
    figure = Figure(figsize=(width, full))
    columns = [x / width for x in (0.05, left, left + ACROSS * tile + 0.12)]
    for x, text in zip(columns, ("Cluster", "Some of its images", "Composition"), strict=True):
        figure.text(x, 1 - 0.13 / full, text, va="center", fontweight="bold", fontsize=8)
    for i, row in enumerate(found):
        middle = 1 - (0.3 + height * (i + 0.5)) / full
        axis = figure.add_axes((columns[1], middle - tile / 2 / full, len(row.members) * tile / width, tile / full))
        axis.imshow(_strip(row.pixels, row.members), cmap="gray", vmin=0, vmax=255, aspect="auto")
        axis.set_axis_off()
        name = f"{drawing.shorten(row.clustering, 16)}: {row.cluster}"
        size = f"{row.size:,} image{'' if row.size == 1 else 's'}"
        size += "" if row.superclass is None else f" in {drawing.shorten(row.superclass, 16)}"
        name = f"{row.condition}/{name}" if row.condition else name
        for x, text in ((columns[0], f"{name}\n{size}"), (columns[2], _composition(row))):
            figure.text(x, middle, text, va="center", fontsize=8, parse_math=False, linespacing=1.15)
    return drawing.svg(figure, "montage", "Images of some clusters, one row per cluster")


def _strip(pixels: np.ndarray | Shards, members: np.ndarray) -> np.ndarray:
    """Return the images side by side, uint8 [H, n*W] or [H, n*W, 3], with thin gaps."""
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
