"""Training images, which families of label spaces work on, and labels, which they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from granularity.base.errors import GranularityError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from granularity.data.wordnet import WordNet


@dataclass
class Labels:
    """A label, or several, for every training image.

    Attributes:
        values: int32 [pairs], labels 0..G-1; one per image, or those of the images one after another.
        names: the G class names.
        offsets: int64 [N + 1], where images have several labels: those of image i are
            `values[offsets[i]:offsets[i + 1]]`, at least one, ascending. None otherwise.
        notes: what the manifest should say of how the labels came about.
    """

    values: np.ndarray
    names: Sequence[str]
    offsets: np.ndarray | None = None
    notes: dict = field(default_factory=dict)

    @property
    def images(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    def image_of_pair(self) -> np.ndarray | slice:
        """For every value the image that carries it: an index into arrays over images."""
        return slice(None) if self.offsets is None else np.repeat(np.arange(self.images), np.diff(self.offsets))

    def table(self, sample_ids: pd.Series) -> pa.Table:
        """`sample_id` and `label`: int32, or a list of int32."""
        import pyarrow as pa

        label = pa.array(self.values, pa.int32())
        if self.offsets is not None:
            label = pa.LargeListArray.from_arrays(self.offsets, label).cast(pa.list_(pa.int32()))
        return pa.table({"sample_id": pa.array(sample_ids), "label": label})


@dataclass
class Clustering:
    """A clustering of the training images.

    Attributes:
        assignment: int32 [N] clusters.
        clusters: its table: `cluster`, `size`, `superclass`, and `level_1`, `level_2`, ... where it is a tree.
        centroids: float32 [clusters, D].
        within: the rank within whose classes the clusters lie; None: over the whole set.
        elsewhere: int32 [M], the clusters of the images of other splits, -1 where an image has none; None where
            nobody asked for them.
    """

    assignment: np.ndarray
    clusters: pd.DataFrame
    centroids: np.ndarray
    within: str | None = None
    elsewhere: np.ndarray | None = None

    def groups(self) -> dict[str | None, np.ndarray]:
        """The clusters within each class of `within`; all of them under None where they lie over the whole set."""
        if self.within is None:
            return {None: np.arange(len(self.clusters))}
        superclass = self.clusters["superclass"]
        return superclass.groupby(superclass).indices


@dataclass
class Training:
    """The training images and what is known of them.

    Attributes:
        frame: `sample_id` and one categorical column per rank, coarse to fine.
        target: the rank of the superclasses.
        seed: the base seed.
        order: the classes of the finest rank, in the publisher's order.
        clusterings: name -> clustering.
        graph: WordNet above the images' synsets, if the sample table has it.
    """

    frame: pd.DataFrame
    target: str
    seed: int = 0
    order: list[str] = field(default_factory=list)
    clusterings: dict[str, Clustering] = field(default_factory=dict)
    graph: WordNet | None = None

    @property
    def finest(self) -> str:
        return self.frame.columns[-1]

    def __len__(self) -> int:
        return len(self.frame)

    def coded(self, rank: str) -> tuple[np.ndarray, np.ndarray]:
        """Class numbers int32 [N] of a rank, and its names in alphabetical order."""
        if rank not in self.frame:
            raise GranularityError(f"there is no rank '{rank}' in the sample table; it has {[*self.frame.columns[1:]]}")
        column = self.frame[rank].cat.remove_unused_categories()
        names = column.cat.categories.to_numpy(dtype=str)
        order = np.argsort(names)
        place = np.empty(len(order), dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return place[column.cat.codes], names[order]

    def publishers_numbers(self, images: pd.DataFrame) -> np.ndarray:
        """Number of each image's finest class in the publisher's order, int32 [N]; -1 where it has none."""
        import pandas as pd

        return pd.Index(self.order).get_indexer(images[self.finest].astype("str")).astype(np.int32)


def numbered(word: str, count: int) -> pd.Series:
    """`word 0`, `word 1`, ...: class names."""
    import pandas as pd

    return word + " " + pd.Series(np.arange(count)).astype("str")
