"""What an embedding shows of a label space before anything is trained on it, and before anything else is known of it.

In a network's first steps a gradient sees of labels what correlates with its inputs (docs/findings/staircase.md). Of
photographs the coordinates that matter are not known; directions of an embedding stand in for them.
"""

from __future__ import annotations

import numpy as np

MOST_IMAGES = 100_000  # more are thinned out evenly
MOST_DIRECTIONS = 64
LEADING = 8


def directions(vectors: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The leading principal directions of an embedding within target classes.

    Args:
        vectors: float [n, d].
        target: int [n], target classes.

    Returns:
        float64 [n, k], k at most 64, a tenth of the images, and the directions that there are: mean 0 in every target
        class, variance 1, uncorrelated, by falling variance in the embedding.
    """
    centred = vectors.astype(np.float64)
    centred -= (_sums(centred, target) / np.bincount(target)[:, None])[target]
    variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    keep = np.argsort(variances)[::-1][: max(1, min(MOST_DIRECTIONS, len(centred) // 10))]
    keep = keep[variances[keep] > 1e-9 * max(variances.max(), 1e-30)]
    return centred @ axes[:, keep] / np.sqrt(variances[keep])


def embedded(labels: np.ndarray, target: np.ndarray, vectors: np.ndarray, leading: np.ndarray) -> dict[str, float]:
    """Numbers of one label space that are 0 in expectation for labels drawn by chance, and at most 1.

    Args:
        labels: int [n], classes that occur, 0 and up; an image with several labels is several rows, in all arrays.
        target: int [n].
        vectors: float [n, d].
        leading: those of :func:`directions`.

    Returns:
        `compactness`: share of the embedding's variance between the label's classes. `signal`: R2 of the one-hot labels
        on the leading directions, both centred within target classes, by one read-out for all of these. `weakest`: of
        the 8 first directions the one that labels tell least of, as the share of its variance between the label's
        classes. Each adjusted for chance.
    """
    n, sizes = len(labels), np.bincount(labels)
    humans = np.bincount(target)
    classes = (humans > 0).sum()
    vectors = vectors - vectors.mean(axis=0, dtype=np.float64)
    between = (_sums(vectors, labels) ** 2 / sizes[:, None]).sum() / max((vectors**2).sum(), 1e-30)
    pairs, joint = np.unique(labels.astype(np.int64) * len(humans) + target, return_counts=True)
    label, human = pairs // len(humans), pairs % len(humans)
    sums = _sums(leading, labels)
    spread = 1 - (joint**2 / humans[human]).sum() / n  # the variance of one-hot labels within target classes
    told = (sums**2).sum() / n**2 / spread if spread > 1e-12 else 0.0
    shares = (sums[:, :LEADING] ** 2 / sizes[:, None]).sum(axis=0) / n
    free = len(sizes) - (joint**2 / (sizes[label] * humans[human])).sum()  # of labels, beyond the target
    left = max(n - classes, 1)
    return {
        "compactness": _adjusted(between, (len(sizes) - 1) / max(n - 1, 1)),
        "signal": _adjusted(told, leading.shape[1] / left) if spread > 1e-12 else 0.0,
        "weakest": _adjusted(shares.min(initial=1.0), free / left) if len(shares) else 0.0,
    }


def _sums(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Sums of rows by group: [groups, d]."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    found = np.zeros((groups.max() + 1, values.shape[1]))
    found[groups[order[starts]]] = np.add.reduceat(values[order], starts, axis=0)
    return found


def _adjusted(share: float, chance: float) -> float:
    """A share that is explained, so that what chance explains is 0."""
    return float(np.clip((share - chance) / (1 - chance), -1, 1)) if chance < 1 - 1e-9 else 0.0
