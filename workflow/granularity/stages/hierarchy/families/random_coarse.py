"""Random groups of equally many classes. Source: Yang, Steinhardt and Hu, section 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from granularity.base.section import Count
from granularity.base.seeds import seed_of
from granularity.stages.hierarchy import merged
from granularity.stages.hierarchy.labels import Labels, Training
from granularity.stages.hierarchy.space import Space

if TYPE_CHECKING:
    import pandas as pd

OPTION = (list[Count], Field([], description="As coarse_mod, after one random permutation of the classes."))
WORDS = "random groups of classes"
STYLE = ("#8d6e63", "d")


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for classes in option:
        yield Space(f"random-coarse-{classes}", "random_coarse", {"classes": classes})


def labels(training: Training, classes: int) -> Labels:
    """As :func:`.coarse_mod.labels`, the finest classes permuted once before (Yang et al.)."""
    return elsewhere(training, training.frame, classes)


def elsewhere(training: Training, others: pd.DataFrame, classes: int) -> Labels:
    """Coarse labels of other images; none for an image of a class that the publisher's list lacks."""
    merged.refuse_uneven("random_coarse", training, classes)
    rng = np.random.default_rng(seed_of(training.seed, "random_coarse", classes))
    return merged.labels(training, others, rng.permutation(len(training.order)) % classes)
