"""Label spaces that part the training images alike, under whatever names and numbers of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from granularity.store.artifacts import Artifact


def first_alike(spaces: Mapping[str, Artifact], classes: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """For each label space the first that parts the images as it does: itself, unless one before it does.

    Args:
        spaces: artifacts of stage `hierarchy`, of the same images, by name.
        classes: their class tables; labels are read only where classes are of the same sizes.
    """
    sizes = {name: _sizes(classes[name]) for name in spaces}
    alike = Counter(sizes.values())
    first: dict[tuple, str] = {}
    parted = {name: _partition(space) if alike[sizes[name]] > 1 else None for name, space in spaces.items()}
    return {name: first.setdefault((sizes[name], parted[name]), name) for name in spaces}


def _sizes(classes: pd.DataFrame) -> bytes:
    sizes = classes["size"].to_numpy()
    return np.sort(sizes[sizes > 0]).tobytes()


def _partition(space: Artifact) -> bytes:
    """The set of classes, each as the sum of its images' hashes (64 bits): the same for any numbering of labels."""
    table = space.table("labels.parquet", ["sample_id", "label"]).explode("label")  # images may have several
    label = table["label"].to_numpy(dtype=np.int64)
    order = np.argsort(label, kind="stable")
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    images = pd.util.hash_pandas_object(table["sample_id"], index=False).to_numpy()
    return np.sort(np.add.reduceat(images[order], starts)).tobytes()
