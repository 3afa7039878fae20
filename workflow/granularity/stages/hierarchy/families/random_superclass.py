"""Random IDs within each superclass. Source: Hong et al., section 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from granularity.base.section import Count
from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.checks import Check, in_one_target_class
from granularity.stages.hierarchy.labels import Labels, Training
from granularity.stages.hierarchy.space import Space

if TYPE_CHECKING:
    from granularity.store.artifacts import Artifact

OPTION = (list[Count], Field([3, 10, 30], description="Random IDs within each superclass: IDs per superclass."))
WORDS = "random IDs per superclass"
STYLE = ("#a8742a", "D")
MEANINGLESS = True


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for each in option:
        yield Space(f"random-superclass-{each}", "random_superclass", {"per_superclass": each})


def labels(training: Training, per_superclass: int) -> Labels:
    """IDs drawn per image within its superclass: without meaning, but each in exactly one target class."""
    superclass, names = training.coded(training.target)
    rng = np.random.default_rng(seed_of(training.seed, "random_superclass", per_superclass))
    values = superclass * per_superclass + rng.integers(per_superclass, size=len(training))
    return Labels(values.astype(np.int32), [f"{name}, random ID {i}" for name in names for i in range(per_superclass)])


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L5: every label lies in one target class; an ID that no image drew may be empty."""
    yield in_one_target_class(space, empty_allowed=True)
