"""Stage `clusters`: FAISS k-means on the embedding, over the whole training split or within each superclass.

Specification: Lloyd's algorithm from random training points, several restarts, on all points (FAISS by itself would
take at most 256 a centroid). Cluster IDs are canonical: clusters are numbered by their first image in the order of
the sample table, superclass by superclass, so the same partition always has the same IDs.
"""

from __future__ import annotations

import re
from pathlib import Path

import faiss
import numpy as np
import pandas as pd

from granularity import artifacts
from granularity.artifacts import Artifact
from granularity.config import Cluster, Device
from granularity.device import faiss_gpus
from granularity.errors import GranularityError
from granularity.progress import say, track
from granularity.seeds import seed_of
from granularity.state import Clock, read_state, write_state


def run(
    params: Cluster,
    clustering: str,
    seed: int,
    samples: Path,
    embedding: Path,
    output: Path,
    device: Device = "auto",
    threads: int = 1,
) -> None:
    """Write one clustering of the training images.

    `assignment.parquet`: `sample_id`, `cluster` (int32, 0..G-1). `clusters.parquet`: `cluster`, `size`, `superclass`
    (null over the whole set), `objective` (sum of squared distances to the centroid). `centroids.npy`: float32
    [G, D], the mean of each cluster's rows.

    Args:
        clustering: `whole-K`, or `superclass-C` for C clusters in each superclass (all its images, where it has
            fewer than C). During the iterations FAISS refills empty clusters by splitting large ones; those empty at
            the end move once to the images farthest from their centroids, and are dropped if they are empty still.

    Raises:
        GranularityError: more clusters than images, or a GPU was asked for and FAISS sees none.
    """
    if not re.fullmatch(r"(whole|superclass)-[1-9]\d*", clustering):
        raise GranularityError(f"clustering = {clustering}: must be whole-K or superclass-C")
    scope, count = clustering.rsplit("-", 1)
    clusters = int(count)
    gpus = faiss_gpus(device)
    faiss.omp_set_num_threads(threads)
    inputs = {
        "samples": Artifact.open(samples, "samples"),
        "embedding": Artifact.open(embedding, "embedding"),
    }
    target = inputs["samples"].params["target"]
    frame = inputs["samples"].table("samples.parquet", ["sample_id", "split", target])
    rows = np.flatnonzero(frame["split"] == "train")
    if clusters > len(rows):
        raise GranularityError(f"{clustering}: {clusters} clusters of {len(rows)} training images")
    frame = frame.iloc[rows].reset_index(drop=True)
    groups = {None: np.arange(len(frame))} if scope == "whole" else frame.groupby(target).indices
    resolved = {**params.model_dump(), "clustering": clustering, "seed": seed, "gpu": gpus > 0}
    with artifacts.create(output, "clusters", "granularity.cluster", inputs, resolved, resumable=True) as out:
        vectors = np.asarray(inputs["embedding"].array("embedding.npy")[rows], dtype=np.float32)
        labels = np.empty(len(frame), dtype=np.int32)
        summary, centroids = [], []
        for superclass, members in track(groups.items(), len(groups), clustering, "groups"):
            local_seed = seed_of(seed, "kmeans", clustering, superclass)
            store = out.work / f"group-{len(centroids)}.safetensors"
            local, centers = kmeans(vectors[members], min(clusters, len(members)), params, local_seed, gpus, store)
            labels[members] = local + sum(map(len, centroids))
            distances = ((vectors[members] - centers[local]) ** 2).sum(1)
            summary += [
                {
                    "cluster": sum(map(len, centroids)) + c,
                    "size": int((local == c).sum()),
                    "superclass": superclass,
                    "objective": float(distances[local == c].sum(dtype=np.float64)),
                }
                for c in range(len(centers))
            ]
            centroids.append(centers)
        table = pd.DataFrame(summary)
        out.table("assignment.parquet", pd.DataFrame({"sample_id": frame["sample_id"], "cluster": labels}))
        out.table("clusters.parquet", table)
        out.array("centroids.npy", np.concatenate(centroids))
        out.summary |= {"clusters": len(table), "objective": float(table["objective"].sum())}
        say(f"{clustering}: {len(table)} clusters, objective {table['objective'].sum():.4f}")


def kmeans(
    vectors: np.ndarray, clusters: int, params: Cluster, seed: int, gpus: int = 0, store: Path | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The best of several k-means runs, in canonical order.

    Args:
        vectors: float32 [N, D].
        clusters: K <= N.
        gpus: GPUs that FAISS uses; 0 is the CPU.
        store: where to keep the work so far, and to continue from.

    Returns:
        labels int32 [N] and centroids float32 [G, D] with G <= K (clusters left empty are dropped).
    """
    state = read_state(store) if store is not None else None
    arrays, notes = state or ({}, {"restart": 0, "iteration": 0, "objective": np.inf})
    best, centroids = arrays.get("best"), arrays.get("centroids")
    objective, first, clock = notes["objective"], notes["iteration"], Clock()
    for restart in range(notes["restart"], params.restarts):
        if centroids is None:
            start = np.random.default_rng(seed_of(seed, restart)).choice(len(vectors), clusters, replace=False)
            centroids, first = vectors[np.sort(start)], 0
        for iteration in range(first, params.iterations):
            step = _faiss(vectors, clusters, gpus)
            step.train(vectors, init_centroids=centroids)
            moved = not np.array_equal(step.centroids, centroids)
            centroids = step.centroids.copy()
            if not moved:
                break
            if store is not None and clock.due():
                arrays = {"centroids": centroids} | ({} if best is None else {"best": best})
                write_state(store, arrays, {"restart": restart, "iteration": iteration + 1, "objective": objective})
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


def _means(vectors: np.ndarray, labels: np.ndarray, clusters: int) -> np.ndarray:
    sums = np.zeros((clusters, vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    sizes = np.bincount(labels, minlength=clusters)
    return (sums / np.maximum(sizes, 1)[:, None]).astype(np.float32)
