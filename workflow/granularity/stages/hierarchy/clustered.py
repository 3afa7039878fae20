"""What the families have in common that are read from one clustering of the CLIP embedding."""

from __future__ import annotations

import numpy as np

from granularity.stages.hierarchy.labels import Clustering, Labels, Training


def only(training: Training, clusterings: list[str]) -> Clustering:
    """The one clustering of that name."""
    (name,) = clusterings
    return training.clusterings[name]


def labels(training: Training, clusterings: list[str]) -> Labels:
    """The clusters of one clustering, as they are numbered there."""
    one = only(training, clusterings)
    names = [cluster_name(*pair) for pair in zip(one.clusters["cluster"], one.clusters["superclass"], strict=True)]
    return Labels(one.assignment.astype(np.int32), names)


def cluster_name(cluster: int, within: str | None) -> str:
    """`cluster 3`, or `animal, cluster 3` of a clustering within superclasses."""
    import pandas as pd

    return f"cluster {cluster}" if pd.isna(within) else f"{within}, cluster {cluster}"
