"""Labels read from clusterings of the CLIP embedding: what the families of such label spaces share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from granularity.stages.hierarchy.labels import Clustering, Labels, Training

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 256  # images whose distances to all centroids are held at a time


def labels(training: Training, clusterings: list[str]) -> Labels:
    """The clusters of one clustering, as they are numbered there."""
    one = only(training, clusterings)
    names = [cluster_name(*pair) for pair in zip(one.clusters["cluster"], one.clusters["superclass"], strict=True)]
    return Labels(one.assignment.astype(np.int32), names)


def elsewhere(training: Training, others: pd.DataFrame, clusterings: list[str]) -> Labels | None:
    """The clusters of other images, see :func:`nearest`; None where their embedding was not given."""
    found = only(training, clusterings).elsewhere
    return None if found is None else Labels(found, labels(training, clusterings).names)


def only(training: Training, clusterings: list[str]) -> Clustering:
    """The clustering of a name."""
    (name,) = clusterings
    return training.clusterings[name]


def nearest(clustering: Clustering, others: pd.DataFrame, vectors: np.ndarray) -> np.ndarray:
    """For each of some images, the cluster with the nearest centroid: int32 [M].

    Where clusters lie within superclasses or classes, only those within the image's own count: -1 where there are none.

    Args:
        vectors: float32 [M, D], in the order of `others`.
    """
    found = np.full(len(vectors), -1, dtype=np.int32)
    for name, clusters in clustering.groups().items():
        rows = np.arange(len(vectors)) if name is None else np.flatnonzero(others[clustering.within] == name)
        centroids = clustering.centroids[clusters].astype(np.float64)
        lengths = (centroids**2).sum(axis=1)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            found[part] = clusters[np.argmin(lengths - 2 * (vectors[part] @ centroids.T), axis=1)]
    return found


def cluster_name(cluster: int, within: str | None) -> str:
    """`cluster 3`, or `animal, cluster 3` of a clustering within superclasses."""
    import pandas as pd

    return f"cluster {cluster}" if pd.isna(within) else f"{within}, cluster {cluster}"
