"""The finest rank with a share of its labels exchanged at random within each superclass; class sizes are kept."""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.checks import Check, in_one_target_class
from granularity.stages.hierarchy.labels import Labels, Training
from granularity.stages.hierarchy.space import Space
from granularity.store.artifact import Artifact

OPTION = (
    list[Annotated[int, Field(ge=1, le=100)]],
    Field([], description="The finest rank, with this percentage of the labels exchanged within their superclass."),
)
WORDS, STYLE = "finest rank, a share redrawn", ("#546e7a", "s")


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for percent in option:
        yield Space(f"redrawn-{percent}", "redrawn", {"percent": percent})


def labels(training: Training, percent: int) -> Labels:
    """Exchange labels; the images of a smaller share are among those of a larger one."""
    label, names = training.coded(training.finest)
    superclass, _ = training.coded(training.target)
    rng = np.random.default_rng(seed_of(training.seed, "redrawn"))
    order = rng.permutation(len(training))
    chosen = order[: round(len(training) * percent / 100)]
    for target_class in np.unique(superclass):
        images = chosen[superclass[chosen] == target_class]
        label[images] = label[rng.permutation(images)]
    return Labels(label, list(names))


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L5: see :func:`in_one_target_class`."""
    yield in_one_target_class(space, empty_allowed=True)
