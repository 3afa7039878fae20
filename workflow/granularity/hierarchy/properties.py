"""What can be said of a label space before anything is trained on it."""

from __future__ import annotations

import numpy as np
import pandas as pd

STARVED = 5  # a class with fewer images than this can hardly be learnt


def class_table(labels: np.ndarray, names: list[str], target: np.ndarray) -> pd.DataFrame:
    """One row a class: `label`, `name`, `size`, `parent` (majority target class; ties to the first), `purity`.

    `purity` is the share of the class that lies in its parent. Classes without an image have neither.
    """
    sizes = np.bincount(labels, minlength=len(names))
    majority = _majority(labels, target).reindex(range(len(names)))
    parent = majority["human"].astype(object)
    return pd.DataFrame(
        {
            "label": np.arange(len(names), dtype=np.int32),
            "name": names,
            "size": sizes,
            "parent": parent.where(parent.notna(), None),
            "purity": majority["images"].to_numpy(dtype=float) / np.maximum(sizes, 1),
        }
    )


def properties(labels: np.ndarray, classes: pd.DataFrame, ranks: pd.DataFrame, target: str) -> dict:
    """Measured properties of a label space on the training images.

    `straddling_share`: share of images whose label maps to more than one target class, 0 for a refinement.
    `purity[rank]`: share of images in the majority human class of their label. `mutual_information_bits[rank]`, and
    `nmi[rank]`: the same over the arithmetic mean of the two entropies.
    """
    sizes = classes["size"].to_numpy()
    straddling = float((classes["purity"].to_numpy()[labels] < 1).mean())
    information = {rank: mutual_information(labels, ranks[rank]) for rank in ranks}
    return {
        "granularity": len(classes),
        "images": len(labels),
        "empty_classes": int((sizes == 0).sum()),
        "refines_target": straddling == 0,
        "straddling_share": straddling,
        "class_size": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "starved_share": float((sizes < STARVED).mean()),
        "purity": {rank: _purity(labels, ranks[rank]) for rank in ranks},
        "mutual_information_bits": {rank: bits for rank, (bits, _) in information.items()},
        "nmi": {rank: nmi for rank, (_, nmi) in information.items()},
    }


def mutual_information(labels: np.ndarray, human: np.ndarray | pd.Series) -> tuple[float, float]:
    """Mutual information of two labellings in bits, and the same over the arithmetic mean of their entropies.

    scikit-learn has both, but importing it costs a second, for every label space that is made.
    """
    pairs = pd.DataFrame({"label": np.asarray(labels), "human": np.asarray(human, dtype=object)})
    joint, first, second = (
        _entropy(pairs.groupby(keys).size().to_numpy()) for keys in (["label", "human"], "label", "human")
    )
    shared = max(0.0, first + second - joint)
    return shared, 2 * shared / (first + second) if first + second > 0 else 1.0


def _entropy(counts: np.ndarray) -> float:
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum())


def _purity(labels: np.ndarray, human: pd.Series) -> float:
    return float(_majority(labels, human)["images"].sum() / len(labels))


def _majority(labels: np.ndarray, human: np.ndarray | pd.Series) -> pd.DataFrame:
    """For each label that occurs: its most frequent human class, and how many of its images that holds.

    Through sorted pairs and not a table of label x class, which for one label an image would not fit in memory.
    """
    pairs = pd.DataFrame({"label": labels, "human": np.asarray(human, dtype=object)})
    counts = pairs.groupby(["label", "human"], sort=True).size().rename("images").reset_index()
    return counts.loc[counts.groupby("label")["images"].idxmax()].set_index("label")
