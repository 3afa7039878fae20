"""Label spaces made from human labels and from chance.

Sources: Hong et al., section 4 and appendix (manual, random); Yang, Steinhardt and Hu, section 3 (relabellings). Where
a paper is silent, the choices are in docs/label_spaces.md.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.labels import Labels, Training


def manual(training: Training, rank: str) -> Labels:
    """The human classes of one rank, in alphabetical order."""
    return Labels(*training.coded(rank))


def random(training: Training, classes: int | None) -> Labels:
    """IDs drawn per image, independently and uniformly over the whole set; None: a bijection, one ID an image.

    An ID that no image drew keeps its place: G is the size of the head, as in the paper.
    """
    rng = np.random.default_rng(seed_of(training.seed, "random", classes))
    count = len(training)
    labels = rng.permutation(count) if classes is None else rng.integers(classes, size=count)
    return Labels(labels.astype(np.int32), _numbered("random ID", classes or count))


def random_superclass(training: Training, per_superclass: int) -> Labels:
    """IDs drawn per image within its superclass: meaningless, but each in exactly one target class."""
    superclass, names = training.coded(training.target)
    rng = np.random.default_rng(seed_of(training.seed, "random_superclass", per_superclass))
    labels = superclass * per_superclass + rng.integers(per_superclass, size=len(training))
    return Labels(labels.astype(np.int32), [f"{name}, random ID {i}" for name in names for i in range(per_superclass)])


def coarse_mod(training: Training, classes: int) -> Labels:
    """Coarse labels y mod C~, y being the number of the finest class in the publisher's order (Yang et al.)."""
    y = _publishers_number(training)
    _divides(classes, training, "coarse_mod")
    return _merged(y, y % classes, training.order)


def random_coarse(training: Training, classes: int) -> Labels:
    """As :func:`coarse_mod`, the finest classes permuted once before (Yang et al.)."""
    y = _publishers_number(training)
    _divides(classes, training, "random_coarse")
    rng = np.random.default_rng(seed_of(training.seed, "random_coarse", classes))
    return _merged(y, rng.permutation(len(training.order))[y] % classes, training.order)


def random_fine(training: Training) -> Labels:
    """Fine labels y + beta C, beta a fair coin an image, tossed once (Yang et al.)."""
    y, count = _publishers_number(training), len(training.order)
    coin = np.random.default_rng(seed_of(training.seed, "random_fine")).integers(2, size=len(training), dtype=np.int32)
    return Labels(y + coin * np.int32(count), [f"{name}, half {half}" for half in (1, 2) for name in training.order])


def _publishers_number(training: Training) -> np.ndarray:
    return pd.Index(training.order).get_indexer(training.frame[training.finest].astype("str")).astype(np.int32)


def _divides(classes: int, training: Training, family: str) -> None:
    if len(training.order) % classes:
        raise GranularityError(
            f"label_spaces.{family}: {classes} does not divide the {len(training.order)} classes of {training.finest}"
        )


def _merged(fine: np.ndarray, coarse: np.ndarray, names: list[str]) -> Labels:
    """Labels of classes merged into coarser ones, named after what they hold."""
    held = pd.DataFrame({"fine": fine, "coarse": coarse}).drop_duplicates().sort_values(["coarse", "fine"])
    joined = [" + ".join(names[i] for i in group) for _, group in held.groupby("coarse")["fine"]]
    return Labels(coarse.astype(np.int32), joined)


def _numbered(word: str, count: int) -> pd.Series:
    return word + " " + pd.Series(np.arange(count)).astype("str")
