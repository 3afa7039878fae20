"""Every class of the finest rank cut in two by chance. Source: Yang, Steinhardt and Hu, section 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field

from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.labels import Labels, Training
from granularity.stages.hierarchy.space import Space

OPTION = (bool, Field(False, description="Each class of the finest rank cut in two, by a coin tossed for each image."))
WORDS = "random halves of classes"
STYLE = ("#8d6e63", "x")


def spaces(option: bool, samples: Any) -> Iterator[Space]:
    if option:
        yield Space("random-fine", "random_fine", {})


def labels(training: Training) -> Labels:
    """Fine labels y + beta C, beta a fair coin tossed once per image (Yang et al.)."""
    y, count = training.publishers_numbers(training.frame), len(training.order)
    coin = np.random.default_rng(seed_of(training.seed, "random_fine")).integers(2, size=len(training), dtype=np.int32)
    return Labels(y + coin * np.int32(count), [f"{name}, half {half}" for half in (1, 2) for name in training.order])
