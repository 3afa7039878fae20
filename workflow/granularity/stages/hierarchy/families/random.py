"""Random IDs over the whole set. Source: Hong et al., section 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field

from granularity.base.section import Count
from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.labels import Labels, Training, numbered
from granularity.stages.hierarchy.options import fewer_than_images
from granularity.stages.hierarchy.space import Space

OPTION = (list[Count], Field([10, 30, 90], description="Random IDs over the whole set: numbers of classes G."))
WORDS = "random IDs"
STYLE = ("#e07b00", "s")
MEANINGLESS = True


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for classes in option:
        yield Space(f"random-{classes}", "random", {"classes": classes})


def check(option: list[int], config: Any) -> Iterator[str]:
    yield from fewer_than_images("random", option, config)


def labels(training: Training, classes: int) -> Labels:
    """IDs drawn per image, independently and uniformly over the whole set.

    An ID that no image drew keeps its place: G is the size of the head, as in the paper.
    """
    rng = np.random.default_rng(seed_of(training.seed, "random", classes))
    return Labels(rng.integers(classes, size=len(training)).astype(np.int32), numbered("random ID", classes))
