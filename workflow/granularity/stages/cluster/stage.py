"""Stage `cluster`: FAISS k-means on the embedding, over the whole training split or within groups of it.

Specification: Lloyd's algorithm from random training points, several restarts, on all points (FAISS by itself would
take at most 256 per centroid). Cluster IDs are canonical: clusters are numbered by their first image in the order of
the sample table, group by group, so the same partition always has the same IDs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import say, track
from granularity.base.seeds import seed_of
from granularity.machine.device import faiss_gpus
from granularity.stages.cluster.options import Cluster
from granularity.store.checkpoints import Clock, read_state, write_state
from granularity.store.task import Task

Arrays, Notes = dict[str, np.ndarray], dict[str, Any]


def run(task: Task) -> None:
    """Write one clustering of the training images.

    `assignment.parquet`: `sample_id`, `cluster` (int32, 0..G-1). `clusters.parquet`: `cluster`, `size`, `superclass`
    (the target class, or the class, it lies within; null over the whole set), `objective` (sum of squared distances
    to the centroid), and `level_1`, `level_2`, ...: the cluster's ancestor at each level of a tree of clusters.
    `centroids.npy`: float32 [G, D], the mean of each cluster's rows.

    During the iterations FAISS refills empty clusters by splitting large ones; those empty at the end move once to the
    images farthest from their centroids, and are dropped if they are empty still.

    Raises:
        GranularityError: more clusters than images, or a GPU was asked for and FAISS sees none.
    """
    options, seed = task.options, task.seed
    scope, *counts = options.clustering.split("-")
    gpus = faiss_gpus(task.device)
    faiss.omp_set_num_threads(task.threads)
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
    resolved = {**options.model_dump(), "within": within, "seed": seed, "gpu": gpus > 0}
    with task.create(inputs, resolved, facts=("clustering", "within"), resumable=True) as out:
        vectors = np.asarray(embedded[rows])
        if not np.isfinite(vectors).all():
            bad = frame["sample_id"][int(np.argmin(np.isfinite(vectors).all(1)))]
            raise GranularityError(f"{inputs['embed'].path / 'embedding.npy'}: that of '{bad}' is not finite")
        # One state for all levels and groups: most groups are done sooner than a checkpoint is due.
        store, clock = out.work / "kmeans.safetensors", Clock()
        begun, notes = read_state(store) or ({}, {"finished": 0})
        every = begun.pop("labels", np.zeros((len(counts), len(frame)), dtype=np.int32))  # within the groups of a level

        def save(finished: int, arrays: Arrays, notes: Notes) -> None:
            if clock.due():
                write_state(store, {"labels": every, **arrays}, {"finished": finished, **notes})

        number = 0  # of the group, over all levels
        ancestors: list[list[int]] = [[] for _ in groups]
        for level in range(1, len(counts) + 1):
            name = "-".join([scope, *counts[:level]])
            found, path = [], []
            for index, (superclass, members) in enumerate(track(groups, len(groups), name, "groups")):
                if number >= notes["finished"]:
                    above = [index] if level > 1 else []
                    every[level - 1, members], _ = kmeans(
                        vectors[members],
                        min(int(counts[level - 1]), len(members)),
                        options,
                        seed_of(seed, "kmeans", name, superclass, *above),
                        gpus,
                        (begun, notes) if begun else None,
                        partial(save, number),
                    )
                    begun = {}
                    save(number + 1, {}, {})
                number += 1
                local = every[level - 1, members]
                grouped = members[np.argsort(local, kind="stable")]
                for part in np.split(grouped, np.cumsum(np.bincount(local))[:-1]):
                    path.append([*ancestors[index], len(found)])
                    found.append((superclass, part))
            groups, ancestors = found, path
        labels = np.empty(len(frame), dtype=np.int32)
        for number, (_, members) in enumerate(groups):
            labels[members] = number
        centroids = _means(vectors, labels, len(groups))
        distances = _squared_distances(vectors, centroids, labels)
        table = pd.DataFrame(
            {
                "cluster": np.arange(len(groups)),
                "size": [len(members) for _, members in groups],
                "superclass": [superclass for superclass, _ in groups],
                "objective": [float(distances[members].sum(dtype=np.float64)) for _, members in groups],
            }
        )
        table[[f"level_{level}" for level in range(1, len(counts) + 1)]] = np.array(ancestors)
        out.table("assignment.parquet", pd.DataFrame({"sample_id": frame["sample_id"], "cluster": labels}))
        out.table("clusters.parquet", table)
        out.array("centroids.npy", centroids)
        out.summary |= {"clusters": len(table), "objective": float(table["objective"].sum())}
        say(f"{options.clustering}: {len(table)} clusters, objective {table['objective'].sum():.4f}")


def kmeans(
    vectors: np.ndarray,
    clusters: int,
    params: Cluster,
    seed: int,
    gpus: int = 0,
    begun: tuple[Arrays, Notes] | None = None,
    save: Callable[[Arrays, Notes], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The best of several k-means runs, in canonical order.

    Args:
        vectors: float32 [N, D].
        clusters: K <= N.
        gpus: GPUs that FAISS uses; 0 is the CPU.
        begun: the work so far, as `save` was given it, to continue from.
        save: called after every iteration.

    Returns:
        labels int32 [N] and centroids float32 [G, D] with G <= K (clusters left empty are dropped).
    """
    arrays, notes = begun or ({}, {"restart": 0, "iteration": 0, "objective": np.inf})
    best, centroids = arrays.get("best"), arrays.get("centroids")
    objective, iteration = notes["objective"], notes["iteration"]
    for restart in range(notes["restart"], params.restarts):
        if centroids is None:
            start = np.random.default_rng(seed_of(seed, restart)).choice(len(vectors), clusters, replace=False)
            centroids, iteration = vectors[np.sort(start)], 0
        while iteration < params.iterations:
            step = _faiss(vectors, clusters, gpus)
            step.train(vectors, init_centroids=centroids)
            moved = not np.array_equal(step.centroids, centroids)
            centroids = step.centroids.copy()
            iteration = iteration + 1 if moved else params.iterations
            if save is not None:
                arrays = {"centroids": centroids} | ({} if best is None else {"best": best})
                save(arrays, {"restart": restart, "iteration": iteration, "objective": objective})
        labels = _assign(vectors, centroids, gpus)
        distances = ((vectors - _means(vectors, labels, clusters)[labels]) ** 2).sum(dtype=np.float64)
        if distances < objective:
            best, objective = labels, float(distances)
        centroids = None
    labels = canonical_order(best)
    return labels, _means(vectors, labels, labels.max() + 1)


def canonical_order(labels: np.ndarray) -> np.ndarray:
    """Renumber clusters 0..G-1 by their first member, so that one partition has one numbering (int32 [N])."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]


def _faiss(vectors: np.ndarray, clusters: int, gpus: int) -> faiss.Kmeans:
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(vectors)}  # all points, whatever K
    return faiss.Kmeans(vectors.shape[1], clusters, niter=1, nredo=1, gpu=gpus or False, **limits)


def _assign(vectors: np.ndarray, centroids: np.ndarray, gpus: int) -> np.ndarray:
    """Nearest centroids; those that win no point move, once, to the points farthest from their own."""
    search = _faiss(vectors, len(centroids), gpus)
    search.centroids = np.array(centroids)
    distances, labels = search.assign(vectors)
    empty = np.setdiff1d(np.arange(len(centroids)), labels)
    if len(empty):
        search.centroids[empty] = vectors[np.argsort(-distances, kind="stable")[: len(empty)]]
        _, labels = search.assign(vectors)
    return labels


def _squared_distances(
    vectors: np.ndarray, centroids: np.ndarray, labels: np.ndarray, chunk: int = 65536
) -> np.ndarray:
    """Squared distance of each row to its centroid, float32 [N]; a chunk of rows in memory at a time."""
    parts = [slice(start, start + chunk) for start in range(0, len(vectors), chunk)]
    return np.concatenate([((vectors[part] - centroids[labels[part]]) ** 2).sum(1) for part in parts])


def _means(vectors: np.ndarray, labels: np.ndarray, clusters: int) -> np.ndarray:
    sums = np.zeros((clusters, vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    sizes = np.bincount(labels, minlength=clusters)
    return (sums / np.maximum(sizes, 1)[:, None]).astype(np.float32)
