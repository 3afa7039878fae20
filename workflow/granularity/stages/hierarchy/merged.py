"""Classes of the finest rank merged into coarser ones: what the families that do so share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from granularity.base.errors import GranularityError
from granularity.stages.hierarchy.labels import Labels, Training

if TYPE_CHECKING:
    import pandas as pd


def refuse_uneven(family: str, training: Training, classes: int) -> None:
    """Raise if the finest classes cannot be merged into groups of equally many."""
    if len(training.order) % classes:
        raise GranularityError(
            f"label_spaces.{family}: {classes} does not divide the {len(training.order)} classes of {training.finest}"
        )


def labels(training: Training, images: pd.DataFrame, group: np.ndarray) -> Labels:
    """The groups of images, named after what they hold; -1 for an image of no known class.

    Args:
        group: int [C], for each of `training.order` its group 0..G-1.
    """
    fine = training.publishers_numbers(images)
    names = [" + ".join(training.order[i] for i in np.flatnonzero(group == one)) for one in range(group.max() + 1)]
    return Labels(np.where(fine < 0, -1, group[fine]).astype(np.int32), names)
