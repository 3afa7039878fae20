"""Lloyd's algorithm by FAISS, on a CPU or on GPUs, in groups of points; finished work survives a kill.

`faiss.Kmeans` starts from random points of the group and uses all its points; the restart with the lowest objective is
kept. FAISS refills empty clusters by splitting large ones. Clusters that are empty at the end move once, to the points
farthest from their own centroids, and are dropped if they are still empty.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

import faiss
import numpy as np
import pandas as pd

from granularity.base import interrupt
from granularity.base.seeds import seed_of
from granularity.stages.cluster.options import Cluster

ROWS = 65536  # rows of vectors processed at once
# Multiplications in one call of FAISS (some seconds); signals and checkpoints are handled between calls.
CALL, CALL_GPU = 2e11, 1e13
POLL = 0.2  # seconds between two checks for a signal, while others compute
Arrays, Notes = dict[str, np.ndarray], dict[str, Any]
Save = Callable[[int, Callable[[], Arrays], Notes], None]


@dataclass(frozen=True)
class Group:
    """Points that are clustered on their own."""

    members: np.ndarray  # their rows, int64 [n], ascending
    clusters: int  # K <= n
    seed: int  # of the random starts

    def start(self, restart: int) -> np.ndarray:
        """Return the indices, among the members, of the first centroids of a restart: int64 [K]."""
        draw = np.random.default_rng(seed_of(self.seed, restart))
        return np.sort(draw.choice(len(self.members), self.clusters, replace=False))


def cluster(
    points: np.ndarray,
    groups: Sequence[Group],
    options: Cluster,
    gpus: int,
    threads: int,
    begun: tuple[int, Arrays, Notes],
    save: Save,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number and the labels of each group of points float32 [N, D]: int32 [n], numbered by first member.

    Groups and restarts run side by side, on one thread each, because several threads of FAISS round differently.

    Args:
        gpus: number of GPUs that FAISS uses; 0: the CPU.
        threads: number of groups and restarts that run at a time, on a CPU.
        begun: the last arguments of `save`, with the arrays themselves; work resumes from there, with the same labels.
        save: called every few seconds with the number of groups yielded, a function that returns the arrays of the
            restarts begun since, and notes on them.
    """
    finished, arrays, notes = begun
    # By "GROUP RESTART": iterations and resamplings done (None: all), the objective, centroids (at the end: labels).
    state = {key: (*values, arrays[key]) for key, values in notes.get("begun", {}).items()}
    several = options.restarts > 1

    def one(number: int, restart: int) -> None:
        group, key = groups[number], f"{number} {restart}"
        first, end = group.members[0], group.members[-1] + 1
        vectors = points[first:end] if end - first == len(group.members) else points[group.members]
        iteration, _, centroids = state.get(key) or (0, 0.0, vectors[group.start(restart)])
        if iteration is None or interrupt.requested():
            return
        lloyd = _kmeans(vectors, group.clusters, gpus)
        for done in _iterations(lloyd, vectors, centroids, iteration, options.iterations, gpus):
            state[key] = done
            if interrupt.requested():
                return
        iteration, _, centroids = state.get(key) or (0, 0.0, centroids)
        for turn in range(max(0, iteration - options.iterations), options.resamplings):
            drawn = seed_of(group.seed, restart, "resampling", turn)
            centroids = _resampled(vectors, centroids, options, drawn, gpus)
            if centroids is None:
                return
            state[key] = (options.iterations + turn + 1, 0.0, centroids)
        labels = _assign(lloyd, vectors, centroids)
        state[key] = (None, _objective(vectors, labels, group.clusters) if several else 0.0, labels)

    def kept(number: int) -> None:
        now = dict(state)
        notes = {"begun": {key: values[:2] for key, values in now.items()}}
        save(number, lambda: {key: values[2] for key, values in now.items()}, notes)

    waiting = ((number, restart) for number in range(finished, len(groups)) for restart in range(options.restarts))
    running: deque[Future] = deque()
    with ThreadPoolExecutor(1 if gpus else threads, initializer=faiss.omp_set_num_threads, initargs=(1,)) as pool:
        for number in range(finished, len(groups)):
            for _ in range(options.restarts):
                running.extend(pool.submit(one, *place) for place in islice(waiting, 2 * threads - len(running)))
                work = running.popleft()
                while wait([work], POLL).not_done:
                    kept(number)
                if interrupt.requested():
                    wait(running)
                    kept(number)
                work.result()
            solutions = [state[f"{number} {restart}"] for restart in range(options.restarts)]
            best = min(solutions, key=lambda values: values[1])[2]  # ties: the first
            yield number, pd.factorize(best)[0].astype(np.int32)  # by first member: one numbering per partition
            for restart in range(options.restarts):
                del state[f"{number} {restart}"]
            kept(number + 1)


def _iterations(
    lloyd: faiss.Kmeans, vectors: np.ndarray, centroids: np.ndarray, iteration: int, most: int, gpus: int
) -> Iterator[tuple[int, float, np.ndarray]]:
    """Iterate until nothing moves; after each call of FAISS, yield the number of iterations, 0.0, and the centroids."""
    longest = max(1, int((CALL_GPU if gpus else CALL) / (vectors.size * len(centroids))))
    steps = longest
    while iteration < most:
        steps = min(steps, most - iteration)
        done = _iterate(lloyd, vectors, centroids, steps)
        settled = steps == 1 and np.array_equal(lloyd.centroids, centroids)
        centroids, iteration = lloyd.centroids, most if settled else iteration + done
        # FAISS stops when its objective, a float32 sum, stays the same. Usually nothing moves then, which one more
        # iteration confirms. (An unchanged longer call would not confirm it, because refills may alternate.)
        steps = longest if done == steps else 1
        yield iteration, 0.0, centroids


def _resampled(vectors: np.ndarray, centroids: np.ndarray, options: Cluster, seed: int, gpus: int) -> np.ndarray | None:
    """Return the centroids of only the images nearest to the given ones, some of each cluster; None after a signal.

    Source: Vo et al. (2024), section 3.3. Starts are those of k-means++, because random ones would leave as many
    clusters in each dense region as before. If fewer than K such images differ, the centroids stay.
    """
    labels = _assign(_kmeans(vectors, len(centroids), gpus), vectors, centroids)
    distances = np.concatenate([part.sum(1) for part in squares(vectors, centroids, labels)])
    order = np.lexsort((distances, labels))
    place = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])  # within its cluster
    near = vectors[np.sort(order[place < options.nearest])]
    draw, start = np.random.default_rng(seed), np.empty_like(centroids)
    nearest = np.ones(len(near))  # squared distance to the starts drawn so far; all alike for the first
    for number in range(len(start)):
        if not nearest.any():
            return centroids
        start[number] = near[draw.choice(len(near), p=nearest / nearest.sum())]
        if number == 0:
            nearest[:] = np.inf
        nearest = np.minimum(nearest, np.square(near - start[number]).sum(1, dtype=np.float64))
    lloyd = _kmeans(near, len(start), gpus)
    for _ in _iterations(lloyd, near, start, 0, options.iterations, gpus):
        if interrupt.requested():
            return None
    return lloyd.centroids


def _objective(vectors: np.ndarray, labels: np.ndarray, clusters: int) -> float:
    centred = squares(vectors, means(vectors, labels, clusters), labels)
    return sum(float(part.sum(dtype=np.float64)) for part in centred)


def _kmeans(vectors: np.ndarray, clusters: int, gpus: int) -> faiss.Kmeans:
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(vectors)}  # all points, whatever K
    return faiss.Kmeans(vectors.shape[1], clusters, gpu=gpus or False, check_input_data_for_NaNs=False, **limits)


def _iterate(lloyd: faiss.Kmeans, vectors: np.ndarray, centroids: np.ndarray, steps: int) -> int:
    """Do at most `steps` iterations from these centroids and return how many; the result is `lloyd.centroids`."""
    lloyd.cp.niter = steps
    lloyd.train(vectors, init_centroids=centroids)
    lloyd.centroids = lloyd.centroids.copy()  # FAISS lends its own memory
    return len(lloyd.obj)


def _assign(lloyd: faiss.Kmeans, vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the nearest centroids; move empty centroids once, to the points farthest from theirs, and reassign."""
    lloyd.centroids = np.array(centroids)
    distances, labels = lloyd.assign(vectors)
    empty = np.flatnonzero(np.bincount(labels, minlength=len(centroids)) == 0)
    if len(empty):
        lloyd.centroids[empty] = vectors[np.argsort(-distances, kind="stable")[: len(empty)]]
        _, labels = lloyd.assign(vectors)
    return labels


def means(vectors: np.ndarray, labels: np.ndarray, clusters: int) -> np.ndarray:
    """Return the mean of each cluster's rows, summed in order in float64: float32 [clusters, D], 0 for empty ones."""
    sums, sizes = np.zeros((clusters, vectors.shape[1])), np.bincount(labels, minlength=clusters)
    for total, rows in zip(sums, np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1]), strict=True):
        for at in range(0, len(rows), ROWS):
            total += vectors[rows[at : at + ROWS]].sum(0, dtype=np.float64)
    return (sums / np.maximum(sizes, 1)[:, None]).astype(np.float32)


def squares(vectors: np.ndarray, centroids: np.ndarray, labels: np.ndarray) -> Iterator[np.ndarray]:
    """Yield squared differences of rows from their centroids, float32 [at most ROWS, D], reusing one buffer."""
    memory = np.empty_like(vectors[:ROWS])
    for at in range(0, len(vectors), ROWS):
        rows = vectors[at : at + ROWS]
        part = np.take(centroids, labels[at : at + ROWS], axis=0, out=memory[: len(rows)], mode="clip")
        np.subtract(rows, part, out=part)
        yield np.multiply(part, part, out=part)
