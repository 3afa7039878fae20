"""Properties of a label space, before training; an image with several labels counts once for each."""

import numpy as np
import pandas as pd

from granularity.stages.hierarchy.labels import Labels

STARVED = 5  # a class with fewer images can hardly be learnt
Coded = tuple[np.ndarray, np.ndarray]  # class numbers of images, and the class names in alphabetical order


def class_table(labels: Labels, target: Coded) -> pd.DataFrame:
    """Return one row per class: `label`, `name`, `size`, `parent` (majority target class; ties: first), `purity`."""
    count = len(labels.names)
    sizes = np.bincount(labels.values, minlength=count)
    label, human, images = _majority(*_joint(labels, target))
    parent, purity = np.full(count, -1), np.full(count, np.nan)
    parent[label], purity[label] = human, images / sizes[label]
    return pd.DataFrame(
        {
            "label": np.arange(count, dtype=np.int32),
            "name": labels.names,
            "size": sizes,
            "parent": pd.Categorical.from_codes(parent, target[1]).astype("str"),
            "purity": purity,
        }
    )


def properties(labels: Labels, classes: pd.DataFrame, ranks: dict[str, Coded]) -> dict:
    """Return measured properties of a label space on the training images.

    `straddling_share`: share of images with a label that occurs in several target classes, 0 for a refinement;
    `straddling_classes`: the share of such labels among those with images. `purity[rank]`: share of images in the
    majority human class of their label. `nmi[rank]`: mutual information over the arithmetic mean of the entropies.
    """
    sizes = classes["size"].to_numpy()
    mixed = classes["purity"].to_numpy() < 1
    straddles = mixed[labels.values]
    if labels.offsets is not None:
        straddles = np.logical_or.reduceat(straddles, labels.offsets[:-1])
    joints = {rank: _joint(labels, coded) for rank, coded in ranks.items()}
    information = {rank: _information(*joint) for rank, joint in joints.items()}
    pairs = len(labels.values)
    return {
        "granularity": len(classes),
        "images": labels.images,
        "multi_label": labels.offsets is not None,
        "labels_per_image": pairs / labels.images,
        "empty_classes": int((sizes == 0).sum()),
        "refines_target": not straddles.any(),
        "straddling_share": float(straddles.mean()),
        "straddling_classes": float(mixed[sizes > 0].mean()),
        "class_size": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "starved_share": float((sizes < STARVED).mean()),
        "purity": {rank: float(_majority(*joint)[2].sum() / pairs) for rank, joint in joints.items()},
        "mutual_information_bits": {rank: bits for rank, (bits, _) in information.items()},
        "nmi": {rank: nmi for rank, (_, nmi) in information.items()},
    }


def _joint(labels: Labels, human: Coded) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the occurring pairs of label and human class, sorted, and image counts (a full table is too large)."""
    codes, names = human
    key = labels.values.astype(np.int64) * len(names) + codes[labels.image_of_pair()]
    pairs, images = np.unique(key, return_counts=True)
    return pairs // len(names), pairs % len(names), images


def _majority(label: np.ndarray, human: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each label that occurs, its most frequent human class, and how many of its images are in that class."""
    order = np.lexsort((human, -images, label))
    first = order[np.flatnonzero(np.diff(label[order], prepend=-1))]
    return label[first], human[first], images[first]


def _information(label: np.ndarray, human: np.ndarray, images: np.ndarray) -> tuple[float, float]:
    """Return mutual information in bits, and normalised by the mean entropy (importing scikit-learn takes a second)."""
    joint = _entropy(images)
    first, second = (_entropy(np.bincount(side, weights=images)) for side in (label, human))
    shared = max(0.0, first + second - joint)
    return shared, 2 * shared / (first + second) if first + second > 0 else 1.0


def _entropy(counts: np.ndarray) -> float:
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())
