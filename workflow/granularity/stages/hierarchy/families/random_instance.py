"""One label per image. Source: Hong et al., section 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field

from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.labels import Labels, Training, numbered
from granularity.stages.hierarchy.space import Space

OPTION = (bool, Field(True, description="A label of its own for every image."))
WORDS = "one label per image"
STYLE = ("#e0303a", "*")
MEANINGLESS = True


def spaces(option: bool, samples: Any) -> Iterator[Space]:
    if option:
        yield Space("random-instance", "random_instance", {})


def labels(training: Training) -> Labels:
    """As many IDs as there are images, in random order."""
    rng = np.random.default_rng(seed_of(training.seed, "random", None))
    return Labels(rng.permutation(len(training)).astype(np.int32), numbered("random ID", len(training)))
