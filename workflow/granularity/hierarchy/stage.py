"""Stage `label_space`: a label for every training image, its class table and its measured properties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from granularity import artifacts
from granularity.artifacts import Artifact
from granularity.errors import GranularityError
from granularity.hierarchy import families
from granularity.hierarchy.properties import class_table, properties
from granularity.progress import say


def run(name: str, family: str, params: dict, seed: int, samples: Path, clusterings: list[Path], output: Path) -> None:
    """Write one label space.

    `labels.parquet`: `sample_id`, `label` (int32, 0..G-1), training images only. `classes.parquet`: see
    :func:`granularity.hierarchy.properties.class_table`. `properties.json`: `space`, `family` and
    :func:`granularity.hierarchy.properties.properties`.

    Args:
        params: the definition, as :class:`granularity.plan.Space` gives it.
        clusterings: artifacts of the clusterings it is read from, coarse to fine.

    Raises:
        GranularityError: an input is missing or does not cover the training images.
    """
    table = Artifact.open(samples, "samples")
    sources = [Artifact.open(path, "clusters") for path in clusterings]
    inputs = {"samples": table} | {source.params["clustering"]: source for source in sources}
    ranks, target = table.params["ranks"], table.params["target"]
    frame = table.table("samples.parquet", ["sample_id", "split", *ranks])
    frame = frame[frame["split"] == "train"].reset_index(drop=True)
    clustered = {source.params["clustering"]: _clustering(source, frame) for source in sources}
    resolved = {"space": name, "family": family, "seed": seed, **params}
    with artifacts.create(output, "label_space", "granularity.hierarchy.stage", inputs, resolved) as out:
        superclass = frame[target].to_numpy(dtype=str)
        if family == "manual":
            labels, names = families.manual(frame, params["rank"])
        elif family == "random":
            labels, names = families.random(frame, params["classes"], seed)
        elif family == "random_superclass":
            labels, names = families.random_superclass(frame, target, params["per_superclass"], seed)
        elif family in ("kmeans", "kmeans_superclass"):
            labels, names = families.clustered(*clustered[params["clusterings"][0]])
        elif family == "rebalanced":
            labels, names, chosen = families.rebalanced(clustered, superclass, params["threshold"])
            out.summary["clusters_of_superclass"] = chosen
        else:
            raise GranularityError(f"{name}: there is no family '{family}'")
        classes = class_table(labels, names, superclass)
        measured = properties(labels, classes, frame[ranks], target)
        out.table("labels.parquet", pd.DataFrame({"sample_id": frame["sample_id"], "label": labels}))
        out.table("classes.parquet", classes)
        out.json("properties.json", {"space": name, "family": family, **measured})
        out.summary["granularity"] = measured["granularity"]
        say(f"{name}: G = {measured['granularity']}, {100 * measured['straddling_share']:.1f} % of images straddle")


def _clustering(source: Artifact, frame: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    assignment = source.table("assignment.parquet", ["sample_id", "cluster"])
    if not assignment["sample_id"].equals(frame["sample_id"]):
        raise GranularityError(f"{source.path}: does not cover the training images of the sample table, row by row")
    return assignment["cluster"].to_numpy(), source.table("clusters.parquet")
