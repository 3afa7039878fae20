"""Coarse labels without meaning in common: class numbers modulo. Source: Yang, Steinhardt and Hu, section 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from granularity.base.section import Count
from granularity.stages.hierarchy import merged
from granularity.stages.hierarchy.labels import Labels, Training
from granularity.stages.hierarchy.space import Space

if TYPE_CHECKING:
    import pandas as pd

OPTION = (
    list[Count],
    Field([], description="Class numbers of the finest rank modulo these: coarse labels without meaning in common."),
)
WORDS = "class number modulo C"
STYLE = ("#8d6e63", "p")


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for classes in option:
        yield Space(f"coarse-mod-{classes}", "coarse_mod", {"classes": classes})


def labels(training: Training, classes: int) -> Labels:
    """Coarse labels y mod C~, y being the number of the finest class in the publisher's order (Yang et al.)."""
    return elsewhere(training, training.frame, classes)


def elsewhere(training: Training, others: pd.DataFrame, classes: int) -> Labels:
    """Coarse labels of other images; none for an image of a class that the publisher's list lacks."""
    merged.refuse_uneven("coarse_mod", training, classes)
    return merged.labels(training, others, np.arange(len(training.order)) % classes)
