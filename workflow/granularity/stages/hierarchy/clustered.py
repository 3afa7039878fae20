"""Label spaces made from clusterings of the CLIP embedding.

Sources: Hong et al., section 4 and appendix (k-means, rebalanced). The nested families are this project's own: levels
of one tree, so that granularity varies while the hierarchy stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.stages.hierarchy.labels import Labels, Training


def clustered(training: Training, clusterings: list[str]) -> Labels:
    """The clusters of one clustering, as they are numbered there."""
    (one,) = (training.clusterings[name] for name in clusterings)
    names = [_name(*pair) for pair in zip(one.clusters["cluster"], one.clusters["superclass"], strict=True)]
    return Labels(one.assignment.astype(np.int32), names)


def topdown(training: Training, clusterings: list[str], level: int) -> Labels:
    """One level of a tree of clusters: each level splits every cluster of the level above by k-means."""
    (one,) = (training.clusterings[name] for name in clusterings)
    column = f"level_{level}"
    if column not in one.clusters:
        raise GranularityError(f"{clusterings[0]}: has no level {level}")
    nodes = one.clusters.drop_duplicates(column).sort_values(column)
    names = [_name(*pair) for pair in zip(nodes[column], nodes["superclass"], strict=True)]
    return Labels(one.clusters[column].to_numpy(dtype=np.int32)[one.assignment], names)


def bottomup(training: Training, clusterings: list[str], classes: int) -> Labels:
    """The centroids of a clustering merged into `classes` groups (within each superclass, if it is one per superclass).

    Ward's method on the centroids, each counting once. Every number of groups is a cut of the same dendrogram, so
    fewer are always a merging of more.
    """
    (one,) = (training.clusterings[name] for name in clusterings)
    merged = np.empty(len(one.clusters), dtype=np.int32)
    names: list[str] = []
    superclass = one.clusters["superclass"]
    groups = {None: np.arange(len(merged))} if superclass.isna().all() else superclass.groupby(superclass).indices
    for within, members in groups.items():
        groups_here = _cut(one.centroids[members], min(classes, len(members)))
        merged[members] = groups_here + len(names)
        names += [_name(len(names) + i, within) for i in range(groups_here.max() + 1)]
    return Labels(merged[one.assignment], names)


def _cut(centroids: np.ndarray, groups: int) -> np.ndarray:
    """Group numbers 0.. of centroids, by first member, from Ward's dendrogram."""
    from scipy.cluster.hierarchy import cut_tree, linkage

    if len(centroids) == 1:
        return np.zeros(1, dtype=np.int32)
    tree = linkage(centroids.astype(np.float64), "ward")
    return pd.factorize(cut_tree(tree, groups)[:, 0])[0].astype(np.int32)


def rebalanced(training: Training, clusterings: list[str], threshold: int) -> Labels:
    """For each superclass, the finest clustering whose smallest cluster still holds more than `threshold` images.

    Where even the coarsest of the grid does not, the superclass stays one class (C = 1).
    """
    superclass, target_names = training.coded(training.target)
    labels, names, chosen = np.empty(len(training), dtype=np.int32), [], {}
    grid = _Grid.of(training, clusterings, superclass, len(target_names))
    for number, name in enumerate(target_names):
        column = grid.choose(number, threshold)
        if column is None:
            labels[superclass == number] = len(names)
            names.append(str(name))
            chosen[str(name)] = 1
            continue
        members = superclass == number
        own, local = np.unique(training.clusterings[clusterings[column]].assignment[members], return_inverse=True)
        labels[members] = local + len(names)
        names += [f"{name}, cluster {c}" for c in range(len(own))]
        chosen[str(name)] = len(own)
    return Labels(labels, names, notes={"clusters_of_superclass": chosen})


def threshold_sweep(training: Training, clusterings: list[str]) -> pd.DataFrame:
    """The granularity of the rebalanced space at every threshold.

    Returns:
        One row a stretch of thresholds that give the same choice, upwards from 0: `threshold_from`, `threshold_to`
        (null: without end), `granularity`.
    """
    superclass, target_names = training.coded(training.target)
    grid = _Grid.of(training, clusterings, superclass, len(target_names))
    steps = np.unique([0, *grid.smallest[grid.smallest > 0]])
    granularity = []
    for threshold in steps:
        columns = [grid.choose(number, threshold) for number in range(len(target_names))]
        granularity.append(sum(1 if c is None else grid.counts[n, c] for n, c in enumerate(columns)))
    table = pd.DataFrame({"threshold_from": steps, "granularity": np.array(granularity, dtype=np.int64)})
    table = table[table["granularity"].ne(table["granularity"].shift())].reset_index(drop=True)
    table.insert(1, "threshold_to", (table["threshold_from"].shift(-1) - 1).astype("Int64"))
    return table


@dataclass
class _Grid:
    """How many clusters each superclass has in each clustering, and how many images the smallest holds."""

    counts: np.ndarray  # int64 [superclasses, clusterings]
    smallest: np.ndarray
    finest_first: list[int]

    @classmethod
    def of(cls, training: Training, clusterings: list[str], superclass: np.ndarray, superclasses: int) -> _Grid:
        shape = superclasses, len(clusterings)
        counts, smallest = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for column, name in enumerate(clusterings):
            assignment = training.clusterings[name].assignment.astype(np.int64)
            pairs, sizes = np.unique(superclass * (assignment.max() + 1) + assignment, return_counts=True)
            owner = pairs // (assignment.max() + 1)
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            counts[:, column] = np.diff([*first, len(owner)])
            smallest[:, column] = np.minimum.reduceat(sizes, first)
        asked = [int(name.rsplit("-", 1)[1]) for name in clusterings]
        return cls(counts, smallest, sorted(range(len(asked)), key=lambda column: -asked[column]))

    def choose(self, superclass: int, threshold: int) -> int | None:
        """The column of the clustering that a superclass takes; None: it stays one class."""
        return next((c for c in self.finest_first if self.smallest[superclass, c] > threshold), None)


def _name(cluster: int, within: str | None) -> str:
    return f"cluster {cluster}" if pd.isna(within) else f"{within}, cluster {cluster}"
