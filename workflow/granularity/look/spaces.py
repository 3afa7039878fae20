"""Label spaces before GPU weeks are spent: comparison, checks (L1-L7 of docs/label_spaces.md), levels of WordNet."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from granularity.base import extensions
from granularity.base.regular import read_text
from granularity.config.options import Config
from granularity.data.wordnet import WordNet
from granularity.look.api import of_kinds
from granularity.look.text import fitted, tables_of
from granularity.stages.hierarchy.checks import Check, published
from granularity.stages.hierarchy.checks import compare as check
from granularity.store.artifact import Artifact

SWEEP = "threshold_sweep.parquet"
COLUMNS = {  # heading and format
    "space": ("label space", "{}"),
    "granularity": ("G", "{}"),
    "size_min": ("min", "{}"),
    "size_median": ("median", "{:g}"),
    "size_max": ("max", "{}"),
    "starved_share": ("starved", "{:.1%}"),
    "refinement_share": ("refines", "{:.1%}"),
    "purity": ("purity", "{:.1%}"),
    "nmi_target": ("NMI target", "{:.2f}"),
    "nmi_finest": ("NMI finest", "{:.2f}"),
    "labels_per_image": ("labels/image", "{:.2f}"),
    "head_parameters": ("head weights", "{:,}"),
    "cost": ("cost", "{:.2f}x"),
}
LEGEND = """\
min, median, max  images per class
starved           share of classes with fewer than 5 images
refines           share of images whose labels lie in one target class each (100 %: a refinement of the target)
purity            share of images in the majority target class of their label
NMI               normalised mutual information with the target, and with the finest human rank
cost              of a training step, forward and backward, in floating-point operations relative to the target's

How well do they predict what a label space gains? NMI finest has done best so far: rank correlation 0.82 (0.47 to 0.89)
over three small data sets, 0.52 among label spaces with a meaning. No other property was better in all of them."""


def compare(root: Path, config: Config) -> list[dict[str, Any]]:
    """Compare the label spaces below a folder of results, by condition; GranularityError if there are none.

    Each entry has `condition` (its folder), `images`, `target`, `finest`, `spaces` (a row each: keys of `COLUMNS`, and
    `flops` of an image's forward pass), `sweeps` (granularity of rebalanced spaces by threshold) and `checks`.
    """
    from granularity.learning.networks.network import forward_flops

    by_condition: dict[Path, list[Artifact]] = {}
    for _, space in of_kinds(root, "hierarchy"):
        by_condition.setdefault(space.path.parents[1], []).append(space)
    order = {family: place for place, family in enumerate(extensions.names("family"))}
    backbone, width = forward_flops(config.model, config.pixels)
    conditions = []
    for condition, spaces in by_condition.items():
        samples = Artifact.open(condition / "samples", "samples")
        about = {"target": samples.params["target"], "finest": samples.params["ranks"][-1]}
        rows = [_row(space, backbone, width, **about) for space in spaces]
        target = next((item["flops"] for item in rows if item["space"] == "target"), None)
        rows = [item | {"cost": item["flops"] / target if target else None} for item in rows]
        rows.sort(
            key=lambda item: (item["space"] != "target", order.get(item["family"], len(order)), item["granularity"])
        )
        sweeps = {}
        for space in (item for item in spaces if SWEEP in item.manifest["files"]):
            sweeps[", ".join(space.params["clusterings"])] = space.table(SWEEP).to_dict("records")
        head = {"condition": str(condition), "images": rows[0]["images"], **about}
        conditions.append(
            head | {"spaces": rows, "sweeps": sweeps, "checks": list(map(asdict, checks(samples, spaces)))}
        )
    return conditions


def _row(space: Artifact, backbone: float, width: int, target: str, finest: str) -> dict[str, Any]:
    properties = space.json("properties.json")
    granularity = properties["granularity"]
    row = {key: space.params[key] for key in ("space", "family")}
    row |= {"granularity": granularity, "images": properties["images"]}
    row |= {f"size_{key}": value for key, value in properties["class_size"].items()}
    row |= {"starved_share": properties["starved_share"], "refinement_share": 1 - properties["straddling_share"]}
    row |= {"purity": properties["purity"][target], "nmi_target": properties["nmi"][target]}
    row |= {"nmi_finest": properties["nmi"][finest], "labels_per_image": properties["labels_per_image"]}
    return row | {"head_parameters": (width + 1) * granularity, "flops": backbone + 2 * width * granularity}


def describe(found: list[dict[str, Any]]) -> str:
    """Return the comparison as text."""
    parts = []
    for condition in found:
        rows = condition["spaces"]
        several = any(round(row["labels_per_image"], 2) != 1 for row in rows)
        columns = {key: column for key, column in COLUMNS.items() if several or key != "labels_per_image"}
        cells = [
            ["" if row[key] is None else form.format(row[key]) for key, (_, form) in columns.items()] for row in rows
        ]
        head = f"{condition['condition']}: {condition['images']:,} training images, target {condition['target']}"
        lines = tables_of([[heading for heading, _ in columns.values()], *cells], 1)
        parts.append("\n".join([f"{head}, finest rank {condition['finest']}", "", *lines]))
        for name, sweep in condition["sweeps"].items():
            steps = ", ".join(f"from {step['threshold_from']}: G = {step['granularity']}" for step in sweep)
            parts.append(f"Rebalanced from {name}, by threshold\n  {steps}")
        if condition["checks"]:
            line = "  {id} {verdict:5s} {what}: {found} (expected {expected})"
            parts.append("\n".join(["Checks", *(line.format(**result) for result in condition["checks"])]))
    return "\n".join(fitted("\n\n".join([*parts, LEGEND]).split("\n")))


# ---------------------------------------------------------------- checks


def checks(samples: Artifact, spaces: list[Artifact]) -> list[Check]:
    """Return all checks of the label spaces of one condition."""
    found = [*_of_samples(samples)]
    for space in spaces:
        name = space.params["family"]
        if name in extensions.names("family"):  # otherwise the family is in a user's file that is not loaded
            found += getattr(extensions.find("family", name), "checks", lambda *_: ())(space, samples)
    return found


def _of_samples(samples: Artifact) -> Iterator[Check]:
    source = samples.params["source"]
    if source == "imagenet21k" and "living_thing" in samples.params["ranks"]:
        counts = samples.table("taxonomy.parquet").groupby("living_thing", observed=True)[["train", "val"]].sum()
        for row in published(source).query("check == 'L3'").itertuples():
            kind, _, split = row.quantity.partition(" in ")  # such as "living things in train"
            yield check("L3", row.quantity, row.published, int(counts[split].get(kind.removesuffix("s"), 0)))
    if source == "inaturalist":
        yield from inaturalist_checks(samples.summary["distinct"], samples.summary["pairs"])


def inaturalist_checks(distinct: dict[str, dict[str, int]], pairs: dict[str, int]) -> Iterator[Check]:
    """L4: compare published numbers of classes with `names` and `paths` of each rank, and `pairs` of fields."""
    fields = {f"{way} of {rank}": count for rank, counts in distinct.items() for way, count in counts.items()}
    for row in published("inaturalist").itertuples():
        if row.quantity in distinct:
            counts = distinct[row.quantity]
            text = f"{counts['names']} names, {counts['paths']} paths"
            yield check("L4", f"classes of {row.quantity}", row.published, text, row.published in counts.values())
        elif row.quantity == "unknown":
            single, double = ([name for name in table if table[name] == row.published] for table in (fields, pairs))
            ways = single or double
            yield check("L4", "the unnamed G", row.published, ", ".join(ways) or "of no field or pair", bool(ways))


def read_synsets(file: Path | None) -> list[str]:
    """Read synset ids, the first word of each line; None: the 21,843 of ImageNet-21k's labels in timm."""
    if file is None:
        from timm.data import ImageNetInfo

        return ImageNetInfo("imagenet21k-goog").label_names()
    return [line.split()[0] for line in read_text(file, what="list of synsets").splitlines() if line.strip()]


def level_counts(graph: WordNet, labels: list[str]) -> pd.DataFrame:
    """Count classes at each WordNet level of some labels: `level`, `granularity`, `several` (labels with > 1)."""
    above = {level: [graph.level(label, level) for label in labels] for level in range(11)}
    rows = [(level, len(frozenset().union(*of)), sum(len(one) > 1 for one in of)) for level, of in above.items()]
    return pd.DataFrame(rows, columns=["level", "granularity", "several"])


def level_checks(counts: pd.DataFrame) -> list[Check]:
    """L1 and L2: check the level counts of the 21,843 labels of ImageNet-21k."""
    found = {f"wordnet level {row.level}": int(row.granularity) for row in counts.itertuples()}
    return [
        check(row.check, f"G at {row.quantity}", row.published, found[row.quantity])
        for row in published("imagenet21k").itertuples()
        if row.quantity in found
    ]
