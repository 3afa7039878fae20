"""The families of label spaces. Each gives every training image a label; numbering and names come with it.

Source: Hong et al., section 4 and appendix; where the paper is silent, the choices are in docs/label_spaces.md.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from granularity.errors import GranularityError
from granularity.seeds import seed_of

Labels = tuple[np.ndarray, list[str]]  # int32 [N] in 0..G-1, and the G class names


def manual(frame: pd.DataFrame, rank: str) -> Labels:
    """The human classes of one rank, in alphabetical order."""
    names, labels = np.unique(frame[rank].to_numpy(dtype=str), return_inverse=True)
    return labels.astype(np.int32), [str(name) for name in names]


def random(frame: pd.DataFrame, classes: int | None, seed: int) -> Labels:
    """IDs drawn per image, independently and uniformly over the whole set; None: a bijection, one ID an image.

    An ID that no image drew keeps its place: G is the size of the head, as in the paper.
    """
    rng = np.random.default_rng(seed_of(seed, "random", classes))
    labels = rng.permutation(len(frame)) if classes is None else rng.integers(classes, size=len(frame))
    return labels.astype(np.int32), [f"random ID {i}" for i in range(classes or len(frame))]


def random_superclass(frame: pd.DataFrame, target: str, per_superclass: int, seed: int) -> Labels:
    """IDs drawn per image within its superclass: meaningless, but each in exactly one target class."""
    superclass, names = manual(frame, target)
    rng = np.random.default_rng(seed_of(seed, "random_superclass", per_superclass))
    labels = superclass * per_superclass + rng.integers(per_superclass, size=len(frame))
    return labels.astype(np.int32), [f"{name}, random ID {i}" for name in names for i in range(per_superclass)]


def clustered(assignment: np.ndarray, clusters: pd.DataFrame) -> Labels:
    """The clusters of one clustering, as they are numbered there."""
    superclass = clusters["superclass"]
    names = [
        f"cluster {cluster}" if pd.isna(name) else f"{name}, cluster {cluster}"
        for cluster, name in zip(clusters["cluster"], superclass, strict=True)
    ]
    return assignment.astype(np.int32), names


def rebalanced(
    clusterings: dict[str, tuple[np.ndarray, pd.DataFrame]], superclass: np.ndarray, threshold: int
) -> tuple[np.ndarray, list[str], dict[str, int]]:
    """For each superclass, the finest clustering whose smallest cluster still holds more than `threshold` images.

    Where even the coarsest of the grid does not, the superclass stays one class (C = 1).

    Args:
        clusterings: `superclass-C` -> (assignment int32 [N], cluster table).
        superclass: the target class of each image, [N].

    Returns:
        labels, class names, and the C chosen for each superclass.
    """
    labels, names, chosen = np.empty(len(superclass), dtype=np.int32), [], {}
    for name in np.unique(superclass):
        members = superclass == name
        grid = sorted(clusterings.items(), key=lambda item: -int(re.sub(r"\D", "", item[0])))
        for _, (assignment, _table) in grid:
            own, local = np.unique(assignment[members], return_inverse=True)
            if np.bincount(local).min() > threshold:
                break
        else:
            own, local = np.zeros(1), np.zeros(members.sum(), dtype=np.int64)
        labels[members] = local + len(names)
        names += [f"{name}, cluster {c}" for c in range(len(own))] if len(own) > 1 else [str(name)]
        chosen[str(name)] = len(own)
    if not chosen:
        raise GranularityError("rebalanced: there are no training images")
    return labels, names, chosen
