"""Stage `label_space`: a label for every training image, its class table and its measured properties."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.data.wordnet import WordNet
from granularity.stages.hierarchy.families import nested, random_instance, rebalanced
from granularity.stages.hierarchy.labels import Clustering, Training
from granularity.stages.hierarchy.properties import class_table, properties
from granularity.store import artifacts
from granularity.store.artifacts import Artifact

FAMILIES = {name: extensions.find("family", name).labels for name in extensions.names("family")}
FAMILIES |= {"topdown": nested.topdown, "bottomup": nested.bottomup}


def run(name: str, family: str, params: dict, seed: int, samples: Path, clusterings: list[Path], output: Path) -> None:
    """Write one label space.

    `labels.parquet`: `sample_id`, `label` (int32, 0..G-1; a list of them where images have several), training images
    only. `classes.parquet`: see :func:`.properties.class_table`. `properties.json`: `space`,
    `family` and :func:`.properties.properties`. `threshold_sweep.parquet`, for the rebalanced
    family: see :func:`.rebalanced.threshold_sweep`.

    Args:
        params: the definition, as :class:`granularity.plan.jobs.Space` gives it.
        clusterings: artifacts of the clusterings it is read from, coarse to fine.

    Raises:
        GranularityError: an input is missing or does not cover the training images.
    """
    if family not in FAMILIES:
        raise GranularityError(f"{name}: there is no family '{family}'; there are {sorted(FAMILIES)}")
    table = Artifact.open(samples, "samples")
    sources = [Artifact.open(path, "clusters") for path in clusterings]
    inputs = {"samples": table} | {source.params["clustering"]: source for source in sources}
    if lacking := [one for one in params.get("clusterings", ()) if one not in inputs]:
        given = ", ".join(str(source.path) for source in sources)
        raise GranularityError(
            f"{name}: is made from the clusterings {lacking}, which are not among those given: {given}"
        )
    training = _training(table, sources, seed)
    resolved = {"space": name, "family": family, "seed": seed, "target": table.params["target"], **params}
    with artifacts.create(
        output, "label_space", "granularity.stages.hierarchy.stage", inputs, resolved, shared=True
    ) as out:
        if out.cached:
            return
        if family == "random" and params["classes"] is None:
            labels = random_instance.labels(training)
        else:
            labels = FAMILIES[family](training, **params)
        ranks = {rank: training.coded(rank) for rank in table.params["ranks"]}
        classes = class_table(labels, ranks[training.target])
        measured = properties(labels, classes, ranks)
        out.table("labels.parquet", labels.table(training.frame["sample_id"]))
        out.table("classes.parquet", classes)
        out.json("properties.json", {"space": name, "family": family, **measured})
        if family == "rebalanced":
            out.table("threshold_sweep.parquet", rebalanced.threshold_sweep(training, params["clusterings"]))
        out.summary |= {"granularity": measured["granularity"], **labels.notes}
        say(f"{name}: G = {measured['granularity']}, {100 * measured['straddling_share']:.1f} % of images straddle")


def _training(samples: Artifact, sources: list[Artifact], seed: int) -> Training:
    ranks = samples.params["ranks"]
    frame = samples.table("samples.parquet", dict.fromkeys(["sample_id", "split", *ranks], "text"))
    frame = frame.loc[frame["split"] == "train", ["sample_id", *ranks]].reset_index(drop=True)
    return Training(
        frame,
        samples.params["target"],
        seed,
        order=samples.table("taxonomy.parquet", [ranks[-1]])[ranks[-1]].drop_duplicates().tolist(),
        clusterings={source.params["clustering"]: _clustering(source, frame) for source in sources},
        graph=WordNet.from_frame(samples.table("wordnet.parquet")) if samples.params.get("wordnet") else None,
    )


def _clustering(source: Artifact, frame) -> Clustering:
    assignment = source.table("assignment.parquet", {"sample_id": "text", "cluster": "whole"})
    if not assignment["sample_id"].equals(frame["sample_id"]):
        raise GranularityError(f"{source.path}: does not cover the training images of the sample table, row by row")
    source.table("clusters.parquet", {"cluster": "whole", "superclass": "text?"})
    clusters, found = source.table("clusters.parquet"), assignment["cluster"].to_numpy()
    if not np.array_equal(clusters["cluster"], np.arange(len(clusters))) or not np.array_equal(
        np.unique(found), clusters["cluster"]
    ):
        raise GranularityError(f"{source.path}: its assignment and its clusters.parquet are not of the same clusters")
    return Clustering(found, clusters, source.array("centroids.npy", (len(clusters), None), np.float32))
