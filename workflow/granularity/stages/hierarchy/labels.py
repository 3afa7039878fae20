"""Training images, which families of label spaces work on, and labels, which they give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from granularity.base.errors import GranularityError
from granularity.data.wordnet import WordNet
from granularity.store.artifact import Artifact

Frame = Any  # a pandas.DataFrame: pandas is slow to import
CHUNK = 256  # images whose distances to all centroids are held at a time


@dataclass
class Labels:
    """A label, or several, for every training image."""

    values: np.ndarray  # int32 [pairs], labels 0..G-1; one per image, or those of the images one after another
    names: Sequence[str]  # of the G classes
    # int64 [N + 1], where images have several labels: those of image i are values[offsets[i]:offsets[i + 1]], at least
    # one, ascending.
    offsets: np.ndarray | None = None
    notes: dict = field(default_factory=dict)  # what the manifest should say of how the labels came about

    @property
    def images(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def image_of_pair(self) -> np.ndarray | slice:
        """For every value the image that carries it: an index into arrays over images."""
        return slice(None) if self.offsets is None else np.repeat(np.arange(self.images), np.diff(self.offsets))

    def table(self, sample_ids: Any) -> Any:
        """`sample_id` and `label`: int32, or a list of int32."""
        import pyarrow as pa

        label = pa.array(self.values, pa.int32())
        if self.offsets is not None:
            label = pa.LargeListArray.from_arrays(self.offsets, label).cast(pa.list_(pa.int32()))
        return pa.table({"sample_id": pa.array(sample_ids), "label": label})


@dataclass
class Clustering:
    """A clustering of the training images."""

    assignment: np.ndarray  # int32 [N] clusters
    clusters: Frame  # `cluster`, `size`, `superclass`, and `level_1`, `level_2`, ... where it is a tree
    centroids: np.ndarray  # float32 [clusters, D]
    within: str | None = None  # the rank within whose classes the clusters lie; None: over the whole set
    elsewhere: np.ndarray | None = None  # int32 [M], of images of other splits, -1: none; None: nobody asked

    def names(self, column: str = "cluster") -> list[str]:
        """Names of its clusters, or of those of a level of a tree."""
        nodes = self.clusters.drop_duplicates(column).sort_values(column)
        return [cluster_name(*pair) for pair in zip(nodes[column], nodes["superclass"], strict=True)]

    def groups(self) -> dict[str | None, np.ndarray]:
        """The clusters within each class of `within`; all of them under None where they lie over the whole set."""
        if self.within is None:
            return {None: np.arange(len(self.clusters))}
        superclass = self.clusters["superclass"]
        return superclass.groupby(superclass).indices

    def nearest(self, others: Frame, vectors: np.ndarray) -> np.ndarray:
        """For each of some images (their ranks; float32 [M, D]) the cluster with the nearest centroid: int32 [M].

        Where clusters lie within superclasses or classes, only those within the image's own; -1 where there are none.
        """
        found = np.full(len(vectors), -1, dtype=np.int32)
        for name, clusters in self.groups().items():
            rows = np.arange(len(vectors)) if name is None else np.flatnonzero(others[self.within] == name)
            centroids = self.centroids[clusters].astype(np.float64)
            lengths = (centroids**2).sum(axis=1)
            for start in range(0, len(rows), CHUNK):
                part = rows[start : start + CHUNK]
                found[part] = clusters[np.argmin(lengths - 2 * (vectors[part] @ centroids.T), axis=1)]
        return found


def of_clusters(clusters: np.ndarray | None, label_of_cluster: np.ndarray, names: Sequence[str]) -> Labels | None:
    """Labels of images by their clusters, -1 where they are of none; None where the clusters are not known."""
    if clusters is None:
        return None
    return Labels(np.where(clusters < 0, -1, label_of_cluster[clusters]).astype(np.int32), names)


def cluster_name(cluster: int, within: str | None) -> str:
    """`cluster 3`, or `animal, cluster 3` of a clustering within superclasses."""
    import pandas as pd

    return f"cluster {cluster}" if pd.isna(within) else f"{within}, cluster {cluster}"


@dataclass
class Training:
    """The training images and what is known of them."""

    frame: Frame  # `sample_id` and one categorical column per rank, coarse to fine
    target: str  # the rank of the superclasses
    seed: int = 0  # the base seed
    clusterings: dict[str, Clustering] = field(default_factory=dict)  # by name
    embedding: np.ndarray | None = None  # float32 [images, D], by rows of the sample table, where there are clusterings
    graph: WordNet | None = None  # above the images' synsets, if the sample table has it
    at: np.ndarray | None = None  # int64 [N], the rows of these images in the sample table
    open_pixels: Callable[[], Artifact] | None = None  # None: the family does not say that it needs them

    @property
    def finest(self) -> str:
        return self.frame.columns[-1]

    @cached_property
    def pixels(self) -> Artifact:
        """The images, of all splits, as the stage `pixels` has kept them."""
        if self.open_pixels is None:
            raise GranularityError('a family that looks at images must say so: NEEDS = ("pixels",)')
        return self.open_pixels()

    def rows(self, images: Frame) -> np.ndarray:
        """Where the training images, or the others, are in the sample table, and so in the pixels."""
        return self.at if images is self.frame else images.index.to_numpy()

    def __len__(self) -> int:
        return len(self.frame)

    def coded(self, rank: str) -> tuple[np.ndarray, np.ndarray]:
        """Class numbers int32 [N] of a rank, and its names in alphabetical order."""
        if rank not in self.frame:
            raise GranularityError(f"there is no rank '{rank}' in the sample table; it has {[*self.frame.columns[1:]]}")
        column = self.frame[rank].cat.remove_unused_categories()
        names, place = np.unique(column.cat.categories.to_numpy(dtype=str), return_inverse=True)
        return place.astype(np.int32)[column.cat.codes], names

    def clusters(self, clustering: str, images: Frame) -> np.ndarray | None:
        """The clusters of the training images, or of the others; None where those are not known."""
        one = self.clusterings[clustering]
        return one.assignment if images is self.frame else one.elsewhere


def labels_of(family: Any, training: Training, params: Mapping[str, Any]) -> Labels:
    """The labels of the training images, by a family."""
    if hasattr(family, "labels"):
        return family.labels(training, **params)
    return family.elsewhere(training, training.frame, **params)
