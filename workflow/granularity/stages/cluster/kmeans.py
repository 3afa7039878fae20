"""Lloyd's algorithm by FAISS, on a CPU or on GPUs, in groups of points; what is done is kept over a kill.

`faiss.Kmeans` from random points of the group, on all points: of several restarts the one with the lowest objective is
kept. FAISS refills clusters that won no point by splitting large ones. Clusters that are empty at the end move once, to
the points farthest from their own centroids, and are dropped if they are empty still.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import faiss
import numpy as np
import pandas as pd

from granularity.base.seeds import seed_of
from granularity.stages.cluster.options import Cluster

ROWS = 65536  # of vectors, copied at once
# Multiplications in one call of FAISS, some seconds: signals are obeyed and checkpoints written between two calls.
CALL, CALL_GPU = 2e11, 1e13
Arrays, Notes = dict[str, np.ndarray], dict[str, Any]
Save = Callable[[int, Callable[[], Arrays], Notes], None]


@dataclass(frozen=True)
class Group:
    """Points that are clustered by themselves."""

    members: np.ndarray  # their rows, int64 [n], ascending
    clusters: int  # K <= n
    seed: int  # of the random starts

    def start(self, restart: int) -> np.ndarray:
        """The members that a restart takes for its first centroids: their places among the members, int64 [K]."""
        draw = np.random.default_rng(seed_of(self.seed, restart))
        return np.sort(draw.choice(len(self.members), self.clusters, replace=False))


def cluster(
    points: np.ndarray,
    groups: Sequence[Group],
    options: Cluster,
    gpus: int,
    begun: tuple[int, Arrays, Notes],
    save: Save,
) -> Iterator[tuple[int, np.ndarray]]:
    """The labels of each group of points, float32 [N, D]: int32 [n] in the order of first members, with its number.

    Args:
        gpus: how many FAISS uses; 0 is the CPU.
        begun: what `save` was given last, with the arrays themselves: the work goes on from there, to the same labels.
        save: called every few seconds: how many groups have been yielded, a function that gives the arrays of the work
            on the next one, and notes on it.
    """
    finished, arrays, notes = begun
    for number in range(finished, len(groups)):
        group = groups[number]
        first, end = group.members[0], group.members[-1] + 1
        vectors = points[first:end] if end - first == len(group.members) else points[group.members]
        best = _best(vectors, group, options, gpus, arrays, notes, partial(save, number))
        yield number, pd.factorize(best)[0].astype(np.int32)  # numbered by first member: one partition, one numbering
        arrays, notes = {}, {}
        save(number + 1, dict, {})


def _best(
    vectors: np.ndarray, group: Group, options: Cluster, gpus: int, arrays: Arrays, notes: Notes, save: partial[None]
) -> np.ndarray:
    most = max(1, int((CALL_GPU if gpus else CALL) / (vectors.size * group.clusters)))
    lloyd, memory = _kmeans(vectors, group.clusters, gpus), np.empty_like(vectors[:ROWS])
    best = {name: arrays[name] for name in arrays if name == "best"}
    centroids, iteration, objective = arrays.get("centroids"), notes.get("iteration", 0), notes.get("objective", np.inf)
    for restart in range(notes.get("restart", 0), options.restarts):
        if centroids is None:
            centroids, iteration = vectors[group.start(restart)], 0
        steps = most
        while iteration < options.iterations:
            steps = min(steps, options.iterations - iteration)
            done = _iterate(lloyd, vectors, centroids, steps)
            settled = steps == 1 and np.array_equal(lloyd.centroids, centroids)
            centroids, iteration = lloyd.centroids, options.iterations if settled else iteration + done
            # FAISS stops where its objective, a sum in float32, stays as it was: mostly as nothing moves any more, and
            # one iteration more tells. (That a longer call changed nothing does not: refills may come and go.)
            steps = most if done == steps else 1
            notes = {"restart": restart, "iteration": iteration, "objective": objective}
            save(partial(dict, best, centroids=centroids), notes)
        labels = _assign(lloyd, vectors, centroids)
        found = _objective(vectors, labels, group.clusters, memory) if options.restarts > 1 else 0.0
        if found < objective:
            best, objective = {"best": labels}, found
        centroids = None
    return best["best"]


def _objective(vectors: np.ndarray, labels: np.ndarray, clusters: int, memory: np.ndarray) -> float:
    centred = squares(vectors, means(vectors, labels, clusters), labels, memory)
    return sum(float(part.sum(dtype=np.float64)) for part in centred)


def _kmeans(vectors: np.ndarray, clusters: int, gpus: int) -> faiss.Kmeans:
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(vectors)}  # all points, whatever K
    return faiss.Kmeans(vectors.shape[1], clusters, gpu=gpus or False, check_input_data_for_NaNs=False, **limits)


def _iterate(lloyd: faiss.Kmeans, vectors: np.ndarray, centroids: np.ndarray, steps: int) -> int:
    """Do iterations from centroids on, at most so many, and say how many; the new ones are `lloyd.centroids`."""
    lloyd.cp.niter = steps
    lloyd.train(vectors, init_centroids=centroids)
    lloyd.centroids = lloyd.centroids.copy()  # FAISS lends its own memory
    return len(lloyd.obj)


def _assign(lloyd: faiss.Kmeans, vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Nearest centroids; those that win no point move, once, to the points farthest from their own."""
    lloyd.centroids = np.array(centroids)
    distances, labels = lloyd.assign(vectors)
    empty = np.flatnonzero(np.bincount(labels, minlength=len(centroids)) == 0)
    if len(empty):
        lloyd.centroids[empty] = vectors[np.argsort(-distances, kind="stable")[: len(empty)]]
        _, labels = lloyd.assign(vectors)
    return labels


def means(vectors: np.ndarray, labels: np.ndarray, clusters: int) -> np.ndarray:
    """Mean of each cluster's rows, added in their order in float64: float32 [clusters, D], 0 where it has none."""
    sums, sizes = np.zeros((clusters, vectors.shape[1])), np.bincount(labels, minlength=clusters)
    for total, rows in zip(sums, np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1]), strict=True):
        for at in range(0, len(rows), ROWS):
            total += vectors[rows[at : at + ROWS]].sum(0, dtype=np.float64)
    return (sums / np.maximum(sizes, 1)[:, None]).astype(np.float32)


def squares(
    vectors: np.ndarray, centroids: np.ndarray, labels: np.ndarray, memory: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Squared differences of rows and their centroids, float32 [at most ROWS, D] at a time, in the same memory."""
    memory = np.empty_like(vectors[:ROWS]) if memory is None else memory
    for at in range(0, len(vectors), ROWS):
        rows = vectors[at : at + ROWS]
        part = np.take(centroids, labels[at : at + ROWS], axis=0, out=memory[: len(rows)], mode="clip")
        np.subtract(rows, part, out=part)
        yield np.multiply(part, part, out=part)
