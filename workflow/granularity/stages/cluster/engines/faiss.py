"""FAISS: `faiss.Kmeans`, one group and one restart after the other; on GPUs if this build of FAISS sees any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import faiss
import numpy as np

from granularity.machine.device import faiss_gpus
from granularity.stages.cluster.groups import Arrays, Group, Notes, Save, canonical_order, means, squares
from granularity.stages.cluster.options import Cluster

EXTENDS = "engine"
# Multiplications in one call of FAISS, some seconds: signals are obeyed and checkpoints written between two calls.
CALL, CALL_GPU = 2e11, 1e13


def prepare(device: str, threads: int) -> int:
    """The number of GPUs that FAISS uses; 0 is the CPU."""
    gpus = faiss_gpus(device)
    faiss.omp_set_num_threads(threads)
    return gpus


def load(vectors: np.ndarray, gpus: int) -> np.ndarray:
    """The vectors themselves: FAISS copies them to its GPUs in every iteration."""
    return vectors


def cluster(
    points: np.ndarray,
    groups: Sequence[Group],
    options: Cluster,
    gpus: int,
    begun: tuple[int, Arrays, Notes],
    save: Save,
) -> Iterator[tuple[int, np.ndarray]]:
    """See :mod:`granularity.stages.cluster.engines`."""
    finished, arrays, notes = begun
    for number in range(finished, len(groups)):
        group = groups[number]
        vectors = points if len(group.members) == len(points) else points[group.members]
        yield number, canonical_order(_best(vectors, group, options, gpus, arrays, notes, partial(save, number)))
        arrays, notes = {}, {}
        save(number + 1, dict, {})


def _best(
    vectors: np.ndarray,
    group: Group,
    options: Cluster,
    gpus: int,
    arrays: Arrays,
    notes: Notes,
    save: partial[None],
) -> np.ndarray:
    """Labels of the restart with the lowest objective."""
    most = max(1, int((CALL_GPU if gpus else CALL) / (vectors.size * group.clusters)))
    lloyd = _kmeans(vectors, group.clusters, gpus)
    best = {name: arrays[name] for name in arrays if name == "best"}
    centroids, iteration = arrays.get("centroids"), notes.get("iteration", 0)
    objective = notes.get("objective", np.inf)
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
        found = _objective(vectors, labels, group.clusters) if options.restarts > 1 else 0.0
        if found < objective:
            best, objective = {"best": labels}, found
        centroids = None
    return best["best"]


def _objective(vectors: np.ndarray, labels: np.ndarray, clusters: int) -> float:
    centred = squares(vectors, means(vectors, labels, clusters), labels)
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
    empty = np.setdiff1d(np.arange(len(centroids)), labels)
    if len(empty):
        lloyd.centroids[empty] = vectors[np.argsort(-distances, kind="stable")[: len(empty)]]
        _, labels = lloyd.assign(vectors)
    return labels
