"""What the engines share: groups of points, where a restart begins, means of clusters, their canonical order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from granularity.base.seeds import seed_of

ROWS = 65536  # of vectors, copied at once
Arrays, Notes = dict[str, np.ndarray], dict[str, Any]
Save = Callable[[int, Callable[[], Arrays], Notes], None]


@dataclass(frozen=True)
class Group:
    """Points that are clustered by themselves.

    Attributes:
        members: their rows, int64 [n].
        clusters: K <= n.
        seed: of the random starts.
    """

    members: np.ndarray
    clusters: int
    seed: int

    def start(self, restart: int) -> np.ndarray:
        """The members that a restart takes for its first centroids: their places among the members, int64 [K]."""
        draw = np.random.default_rng(seed_of(self.seed, restart))
        return np.sort(draw.choice(len(self.members), self.clusters, replace=False))


def canonical_order(labels: np.ndarray) -> np.ndarray:
    """Renumber clusters 0..G-1 by their first member, so that one partition has one numbering (int32 [N])."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]


def sums(vectors: np.ndarray, labels: np.ndarray, clusters: int) -> np.ndarray:
    """Sum of each cluster's rows, added in their order, float64 [clusters, D]."""
    found = np.zeros((clusters, vectors.shape[1]))
    bounds = np.cumsum(np.bincount(labels, minlength=clusters))
    for total, rows in zip(found, np.split(np.argsort(labels, kind="stable"), bounds[:-1]), strict=True):
        for at in range(0, len(rows), ROWS):
            total += vectors[rows[at : at + ROWS]].sum(0, dtype=np.float64)
    return found


def means(vectors: np.ndarray, labels: np.ndarray, clusters: int) -> np.ndarray:
    """Mean of each cluster's rows, float32 [clusters, D], 0 where it has none."""
    sizes = np.bincount(labels, minlength=clusters)
    return (sums(vectors, labels, clusters) / np.maximum(sizes, 1)[:, None]).astype(np.float32)


def squares(vectors: np.ndarray, centroids: np.ndarray, labels: np.ndarray) -> Iterator[np.ndarray]:
    """Squared differences of rows and the centroids of their clusters, float32 [at most ROWS, D] at a time."""
    for at in range(0, len(vectors), ROWS):
        part = vectors[at : at + ROWS] - centroids[labels[at : at + ROWS]]
        part *= part
        yield part
