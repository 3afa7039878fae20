"""Training images, the input of families of label spaces, and labels, their output."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from granularity.base.errors import GranularityError
from granularity.data.wordnet import WordNet
from granularity.store.artifact import Artifact

Frame = Any  # a pandas.DataFrame: pandas is slow to import
CHUNK = 256  # images whose distances to all centroids are computed at a time


@dataclass
class Labels:
    """One or several labels for every training image."""

    values: np.ndarray  # int32 [pairs], labels 0..G-1: one per image, or the lists of all images concatenated
    names: Sequence[str]  # of the G classes
    # int64 [N + 1], if images have several labels: image i has values[offsets[i]:offsets[i + 1]], at least one,
    # ascending.
    offsets: np.ndarray | None = None
    notes: dict = field(default_factory=dict)  # what the manifest should record about the labels

    @property
    def images(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def image_of_pair(self) -> np.ndarray | slice:
        """Return the image of every value, as an index into arrays over images."""
        return slice(None) if self.offsets is None else np.repeat(np.arange(self.images), np.diff(self.offsets))

    def table(self, sample_ids: Any) -> Any:
        """Return `sample_id` and `label`: int32, or a list of int32."""
        import pyarrow as pa

        label = pa.array(self.values, pa.int32())
        if self.offsets is not None:
            label = pa.LargeListArray.from_arrays(self.offsets, label).cast(pa.list_(pa.int32()))
        return pa.table({"sample_id": pa.array(sample_ids), "label": label})


@dataclass
class Clustering:
    """A clustering of the training images."""

    assignment: np.ndarray  # int32 [N] clusters
    clusters: Frame  # `cluster`, `size`, `superclass`, and `level_1`, `level_2`, ... if it is a tree
    centroids: np.ndarray  # float32 [clusters, D]
    within: str | None = None  # the rank whose classes contain the clusters; None: clusters of the whole set
    elsewhere: np.ndarray | None = None  # int32 [M], clusters of images of other splits (-1: none); None: not computed

    def names(self, column: str = "cluster") -> list[str]:
        """Return the names of its clusters, or of the nodes of a level of a tree."""
        nodes = self.clusters.drop_duplicates(column).sort_values(column)
        return [cluster_name(*pair) for pair in zip(nodes[column], nodes["superclass"], strict=True)]

    def groups(self) -> dict[str | None, np.ndarray]:
        """Return the clusters within each class of `within`, or all clusters under None if it covers the whole set."""
        if self.within is None:
            return {None: np.arange(len(self.clusters))}
        superclass = self.clusters["superclass"]
        return superclass.groupby(superclass).indices

    def nearest(self, others: Frame, vectors: np.ndarray) -> np.ndarray:
        """Return the cluster with the nearest centroid, int32 [M], for images with these ranks and vectors [M, D].

        For clusters within superclasses or classes, only those of the image's own class count; -1 if there are none.
        """
        nearest = np.full(len(vectors), -1, dtype=np.int32)
        for name, clusters in self.groups().items():
            rows = np.arange(len(vectors)) if name is None else np.flatnonzero(others[self.within] == name)
            centroids = self.centroids[clusters].astype(np.float64)
            lengths = (centroids**2).sum(axis=1)
            for start in range(0, len(rows), CHUNK):
                part = rows[start : start + CHUNK]
                nearest[part] = clusters[np.argmin(lengths - 2 * (vectors[part] @ centroids.T), axis=1)]
        return nearest


def of_clusters(clusters: np.ndarray | None, label_of_cluster: np.ndarray, names: Sequence[str]) -> Labels | None:
    """Return labels of images by their clusters (-1: no cluster); None if the clusters are not known."""
    if clusters is None:
        return None
    return Labels(np.where(clusters < 0, -1, label_of_cluster[clusters]).astype(np.int32), names)


def cluster_name(cluster: int, within: str | None) -> str:
    """Return `cluster 3`, or `animal, cluster 3` for a clustering within superclasses."""
    import pandas as pd

    return f"cluster {cluster}" if pd.isna(within) else f"{within}, cluster {cluster}"


@dataclass
class Training:
    """The training images and what is known of them."""

    frame: Frame  # `sample_id` and one categorical column per rank, coarse to fine
    target: str  # the rank of the superclasses
    seed: int = 0  # the base seed
    clusterings: dict[str, Clustering] = field(default_factory=dict)  # by name
    embedding: np.ndarray | None = None  # float32 [images, D], by rows of the sample table, if there are clusterings
    graph: WordNet | None = None  # above the images' synsets, if the sample table has it
    at: np.ndarray | None = None  # int64 [N], the rows of these images in the sample table
    open_pixels: Callable[[], Artifact] | None = None  # None: the family does not declare that it needs them

    @property
    def finest(self) -> str:
        return self.frame.columns[-1]

    @cached_property
    def pixels(self) -> Artifact:
        """The images of all splits, as kept by stage `pixels`."""
        if self.open_pixels is None:
            raise GranularityError('a family that reads images must declare NEEDS = ("pixels",)')
        return self.open_pixels()

    def rows(self, images: Frame) -> np.ndarray:
        """Return the rows of the training images, or of the others, in the sample table and so in the pixels."""
        return self.at if images is self.frame else images.index.to_numpy()

    def __len__(self) -> int:
        return len(self.frame)

    def coded(self, rank: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the class numbers int32 [N] of a rank, and its names in alphabetical order."""
        if rank not in self.frame:
            raise GranularityError(f"there is no rank '{rank}' in the sample table; it has {[*self.frame.columns[1:]]}")
        column = self.frame[rank].cat.remove_unused_categories()
        names, place = np.unique(column.cat.categories.to_numpy(dtype=str), return_inverse=True)
        return place.astype(np.int32)[column.cat.codes], names

    def clusters(self, clustering: str, images: Frame) -> np.ndarray | None:
        """Return the clusters of the training images, or of the others; None if those are not known."""
        one = self.clusterings[clustering]
        return one.assignment if images is self.frame else one.elsewhere


def labels_of(family: Any, training: Training, params: Mapping[str, Any]) -> Labels:
    """Return a family's labels of the training images."""
    if hasattr(family, "labels"):
        return family.labels(training, **params)
    return family.elsewhere(training, training.frame, **params)
