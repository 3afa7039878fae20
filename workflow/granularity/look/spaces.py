"""The comparison of label spaces that one wants before spending GPU weeks: `granularity spaces`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.look import label_checks
from granularity.store import artifacts
from granularity.store.artifacts import Artifact

SWEEP = "threshold_sweep.parquet"
HEADINGS = {
    "space": "label space",
    "granularity": "G",
    "size_min": "min",
    "size_median": "median",
    "size_max": "max",
    "starved_share": "starved",
    "refinement_share": "refines",
    "purity": "purity",
    "nmi_target": "NMI target",
    "nmi_finest": "NMI finest",
    "labels_per_image": "labels/image",
    "head_parameters": "head weights",
    "cost": "cost",
}
LEGEND = """\
min, median, max  images per class
starved           share of classes with fewer than 5 images
refines           share of images whose labels lie in one target class each (100 %: a refinement of the target)
purity            share of images in the majority target class of their label
NMI               normalised mutual information with the target, and with the finest human rank
cost              of a training step, forward and backward, in floating-point operations relative to the target's"""


def compare(root: Path, config: Config) -> list[dict[str, Any]]:
    """The label spaces below a folder of results, condition by condition.

    Returns:
        One entry per condition: `condition` (its folder), `images`, `target`, `finest`, `spaces` (a list of rows, see
        :func:`row`), `sweeps` (granularity of the rebalanced spaces by threshold) and `checks`.

    Raises:
        GranularityError: there are none, or one is corrupt or stale.
    """
    from granularity.learning.flops import forward_flops

    made: dict[Path, list[Artifact]] = {}
    for folder in artifacts.find(root):
        if Artifact.peek(folder).kind == "hierarchy":
            made.setdefault(folder.parents[1], []).append(Artifact.open(folder, "hierarchy"))
    if not made:
        raise GranularityError(f"{root}: holds no label spaces; make them with: snakemake hierarchy")
    order = {family: place for place, family in enumerate(extensions.names("family"))}
    backbone, width = forward_flops(config.model, config.pixels)
    found = []
    for condition, spaces in made.items():
        samples = Artifact.open(condition / "samples", "samples")
        rows = [row(space, samples, backbone, width) for space in spaces]
        target = next((one for one in rows if one["space"] == "target"), None)
        for one in rows:
            one["cost"] = one["flops"] / target["flops"] if target else None
        rows.sort(key=lambda one: (one["space"] != "target", order.get(one["family"], len(order)), one["granularity"]))
        sweeps = {
            ", ".join(space.params["clusterings"]): _steps(space)
            for space in spaces
            if SWEEP in space.manifest["files"]
        }
        found.append(
            {
                "condition": str(condition),
                "images": rows[0]["images"],
                "target": samples.params["target"],
                "finest": samples.params["ranks"][-1],
                "spaces": rows,
                "sweeps": sweeps,
                "checks": [asdict(check) for check in label_checks.checks(samples, spaces)],
            }
        )
    return found


def row(space: Artifact, samples: Artifact, backbone: float, width: int) -> dict[str, Any]:
    """The row of one label space in the comparison.

    Args:
        backbone: floating-point operations per image of the network without its head.
        width: inputs of the head.
    """
    properties = space.json("properties.json")
    target, finest = samples.params["target"], samples.params["ranks"][-1]
    granularity = properties["granularity"]
    return {
        "space": space.params["space"],
        "family": space.params["family"],
        "granularity": granularity,
        "images": properties["images"],
        **{f"size_{key}": value for key, value in properties["class_size"].items()},
        "starved_share": properties["starved_share"],
        "refinement_share": 1 - properties["straddling_share"],
        "purity": properties["purity"][target],
        "nmi_target": properties["nmi"][target],
        "nmi_finest": properties["nmi"][finest],
        "labels_per_image": properties["labels_per_image"],
        "head_parameters": (width + 1) * granularity,
        "flops": backbone + 2 * width * granularity,
    }


def _steps(rebalanced: Artifact) -> list[dict[str, int | None]]:
    table = rebalanced.table(SWEEP)
    return [
        {key: None if pd.isna(value) else int(value) for key, value in step.items()}
        for step in table.to_dict("records")
    ]


def describe(found: list[dict[str, Any]]) -> str:
    """The comparison as text."""
    parts = []
    for condition in found:
        table = pd.DataFrame(condition["spaces"])[list(HEADINGS)]
        for column in ("starved_share", "refinement_share", "purity"):
            table[column] = [f"{100 * value:.1f} %" for value in table[column]]
        for column in ("nmi_target", "nmi_finest", "labels_per_image"):
            table[column] = [f"{value:.2f}" for value in table[column]]
        table["size_median"] = [f"{value:g}" for value in table["size_median"]]
        table["head_parameters"] = [f"{value:,}" for value in table["head_parameters"]]
        table["cost"] = ["" if value is None else f"{value:.2f}x" for value in table["cost"]]
        if (table["labels_per_image"] == "1.00").all():
            table = table.drop(columns="labels_per_image")
        parts.append(
            f"{condition['condition']}: {condition['images']:,} training images, target {condition['target']}, "
            f"finest rank {condition['finest']}\n\n{table.rename(columns=HEADINGS).to_string(index=False)}"
        )
        for name, sweep in condition["sweeps"].items():
            steps = ", ".join(f"from {step['threshold_from']}: G = {step['granularity']}" for step in sweep)
            parts.append(f"Rebalanced from {name}, by threshold\n  {steps}")
        if condition["checks"]:
            lines = [
                "  {id} {verdict:5s} {what}: {found} (expected {expected})".format(**check)
                for check in condition["checks"]
            ]
            parts.append("Checks\n" + "\n".join(lines))
    return "\n\n".join([*parts, LEGEND])
