"""Stage `hierarchy`: a label for every training image, its class table and its measured properties."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.data.wordnet import WordNet
from granularity.stages.hierarchy.labels import Clustering, Labels, Training, labels_of
from granularity.stages.hierarchy.properties import class_table, properties
from granularity.stages.hierarchy.space import needs
from granularity.store.artifact import Artifact
from granularity.store.task import Task


def run(task: Task) -> None:
    """Write one label space (files: docs/artifacts.md).

    `label` in `labels_elsewhere.parquet` is a list if it is one in `labels.parquet`, or if an image there has several;
    images without a label are left out. Raises GranularityError: there is no such family; an input is missing or does
    not cover the training images.
    """
    name, params = task.options.space, task.options.params
    family = extensions.find("family", task.options.family)
    samples, clusters = task.open("samples"), {item.facts["clustering"]: item for item in task.open_all("cluster")}
    if lacking := [item for item in params.get("clusterings", ()) if item not in clusters]:
        paths = ", ".join(map(str, task.paths("cluster")))
        raise GranularityError(f"{name}: needs the clusterings {lacking}, but was given only {paths}")
    embedding = None if task.path("embed") is None else task.open("embed")
    inputs = {"samples": samples, **clusters, **({} if embedding is None else {"embed": embedding})}
    training, others = _images(samples, task.seed)
    if needs(task.options):
        if task.path("pixels") is None:
            raise GranularityError(f"{name}: its family reads images; give --pixels")
        inputs["pixels"], training.open_pixels = Artifact.peek(task.path("pixels")), lambda: task.open("pixels")
    training.clusterings = {key: _clustering(item, training.frame) for key, item in clusters.items()}
    if embedding is not None:
        training.embedding = embedding.array("embedding.npy", (len(training) + len(others), None), np.float32)
    resolved = {"space": name, "family": task.options.family, "seed": task.seed, "target": training.target, **params}
    facts = tuple(key for key in resolved if key != "seed")  # a seed without effect does not make another space
    with task.create(inputs, resolved, facts) as out:
        labels = labels_of(family, training, params)
        ranks = {rank: training.coded(rank) for rank in samples.facts["ranks"]}
        classes = class_table(labels, ranks[training.target])
        measured = properties(labels, classes, ranks)
        out.table("labels.parquet", labels.table(training.frame["sample_id"]))
        out.table("classes.parquet", classes)
        out.json("properties.json", {"space": name, "family": task.options.family, **measured})
        for file, table in family.more_files(training, **params).items() if hasattr(family, "more_files") else ():
            out.table(file, table)
        out.summary |= {"granularity": measured["granularity"], **labels.notes}
        if hasattr(family, "elsewhere") and len(others):
            if embedding is not None:
                vectors = np.asarray(training.embedding[others.index])
                for item in training.clusterings.values():
                    item.elsewhere = item.nearest(others, vectors)
            labels_elsewhere = family.elsewhere(training, others, **params)
            if labels_elsewhere is not None:
                table = _elsewhere(labels_elsewhere, others, several=labels.offsets is not None)
                out.table("labels_elsewhere.parquet", table)
                out.summary["elsewhere"] = len(table)
        say(f"{name}: G = {measured['granularity']}, {100 * measured['straddling_share']:.1f} % of images straddle")


def _images(samples: Artifact, seed: int) -> tuple[Training, pd.DataFrame]:
    """Return the training images with what is known of them, and the others' ranks, indexed as in the sample table."""
    ranks = samples.facts["ranks"]
    frame = samples.table("samples.parquet", dict.fromkeys(["sample_id", "split", *ranks], "text"))
    training = Training(
        frame.loc[frame["split"] == "train", ["sample_id", *ranks]].reset_index(drop=True),
        samples.facts["target"],
        seed,
        graph=WordNet.from_frame(samples.table("wordnet.parquet")) if samples.facts["wordnet"] else None,
        at=np.flatnonzero(frame["split"] == "train"),
    )
    return training, frame.loc[frame["split"] != "train", ["sample_id", "split", *ranks]]


def _clustering(source: Artifact, frame: pd.DataFrame) -> Clustering:
    assignment = source.table("assignment.parquet", {"sample_id": "text", "cluster": "whole"})
    if not assignment["sample_id"].equals(frame["sample_id"]):
        raise GranularityError(f"{source.path}: does not cover the training images of the sample table, row by row")
    clusters = source.table("clusters.parquet")
    centroids = source.array("centroids.npy", (len(clusters), None), np.float32)
    return Clustering(assignment["cluster"].to_numpy(), clusters, centroids, source.facts["within"])


def _elsewhere(labels: Labels, others: pd.DataFrame, several: bool) -> pa.Table:
    has = labels.values >= 0 if labels.offsets is None else np.diff(labels.offsets) > 0
    if several and labels.offsets is None:
        labels = replace(labels, offsets=np.arange(len(labels.values) + 1))
    table = labels.table(others["sample_id"]).add_column(1, "split", pa.array(others["split"].astype("str")))
    return table.filter(pa.array(has))
