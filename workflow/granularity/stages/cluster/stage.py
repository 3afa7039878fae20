"""Stage `cluster`: k-means on the embedding, over the whole training split or within groups of it.

Cluster IDs are canonical: clusters are numbered by their first image in the order of the sample table, group by group,
so equal partitions have equal IDs.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import say, track
from granularity.base.seeds import seed_of
from granularity.machine.device import faiss_gpus
from granularity.stages.cluster.kmeans import ROWS, Arrays, Group, Notes, cluster, means, squares
from granularity.store.resume import Clock, read_state, write_state
from granularity.store.task import Task


def run(task: Task) -> None:
    """Write one clustering of the training images (files: docs/artifacts.md).

    `objective` is the sum of squared distances to the mean of the cluster's rows. Raises GranularityError: more
    clusters than images, an embedding that is not finite, or a GPU was asked for but FAISS sees none.
    """
    options, seed = task.options, task.seed
    scope, *counts = options.clustering.split("-")
    gpus = faiss_gpus(task.device)
    inputs = {role: task.open(role) for role in ("samples", "embed")}
    ranks = {"superclass": inputs["samples"].facts["target"], "class": inputs["samples"].facts["ranks"][-1]}
    within = ranks.get(scope)
    columns = ["sample_id", "split", *([within] if within is not None else [])]
    frame = inputs["samples"].table("samples.parquet", dict.fromkeys(columns, "text"))
    embedded = inputs["embed"].array("embedding.npy", (len(frame), None), np.float32)
    rows = np.flatnonzero(frame["split"] == "train")
    if int(counts[0]) > len(rows):
        raise GranularityError(f"{options.clustering}: {counts[0]} clusters of {len(rows)} training images")
    frame = frame.iloc[rows].reset_index(drop=True)
    groups = [(None, np.arange(len(frame)))]
    if within is not None:
        groups = list(frame.groupby(frame[within].astype("str")).indices.items())
    resolved = {**options.model_dump(), "within": within, "seed": seed, "gpu": bool(gpus)}
    with task.create(inputs, resolved, facts=("clustering", "within"), resumable=True) as out:
        vectors = np.asarray(embedded[rows])
        for at in range(0, len(vectors), ROWS):
            finite = np.isfinite(vectors[at : at + ROWS]).all(1)
            if not finite.all():
                bad = frame["sample_id"][at + int(np.argmin(finite))]
                raise GranularityError(f"{inputs['embed'].path / 'embedding.npy'}: the vector of '{bad}' is not finite")
        # One state for all levels and groups: most groups finish before a checkpoint is due.
        store, clock = out.work / "kmeans.safetensors", Clock()
        arrays, notes = read_state(store) or ({}, {"level": 0, "finished": 0})
        codes = arrays.pop("labels", np.zeros((len(counts), len(frame)), dtype=np.int32))  # within groups of a level
        begun = (notes["finished"], arrays, notes)
        ancestors: list[list[int]] = [[] for _ in groups]
        for level, count in enumerate(counts):
            name = "-".join([scope, *counts[: level + 1]])

            def save(finished: int, arrays: Callable[[], Arrays], notes: Notes, level: int = level) -> None:
                if clock.due():
                    write_state(store, {"labels": codes, **arrays()}, {**notes, "level": level, "finished": finished})

            if level >= notes["level"]:
                splits = []
                for index, (superclass, members) in enumerate(groups):
                    drawn = seed_of(seed, "kmeans", name, superclass, *([index] if level else []))
                    splits.append(Group(members, min(int(count), len(members)), drawn))
                results = cluster(vectors, splits, options, gpus, task.threads, begun, save)
                for index, labels in track(results, len(groups) - begun[0], name, "groups"):
                    codes[level, groups[index][1]] = labels
                begun = (0, {}, {})
            parts, path = [], []
            for index, (superclass, members) in enumerate(groups):
                local = codes[level, members]
                grouped = members[np.argsort(local, kind="stable")]
                for part in np.split(grouped, np.cumsum(np.bincount(local))[:-1]):
                    path.append([*ancestors[index], len(parts)])
                    parts.append((superclass, part))
            groups, ancestors = parts, path
        labels = np.empty(len(frame), dtype=np.int32)
        for number, (_, members) in enumerate(groups):
            labels[members] = number
        centroids = means(vectors, labels, len(groups))
        distances = np.concatenate([part.sum(1) for part in squares(vectors, centroids, labels)])
        columns = {
            "cluster": np.arange(len(groups)),
            "size": [len(members) for _, members in groups],
            "superclass": [superclass for superclass, _ in groups],
            "objective": [float(distances[members].sum(dtype=np.float64)) for _, members in groups],
        }
        levels = {f"level_{level}": ids for level, ids in enumerate(zip(*ancestors, strict=True), start=1)}
        table = pd.DataFrame(columns | levels)
        out.table("assignment.parquet", pd.DataFrame({"sample_id": frame["sample_id"], "cluster": labels}))
        out.table("clusters.parquet", table)
        out.array("centroids.npy", centroids)
        out.summary |= {"clusters": len(table), "objective": float(table["objective"].sum())}
        say(f"{options.clustering}: {len(table)} clusters, objective {table['objective'].sum():.4f}")
