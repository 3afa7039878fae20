"""Human classes of one rank. Source: Hong et al., section 4."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field

from granularity.stages.hierarchy.labels import Frame, Labels, Training
from granularity.stages.hierarchy.space import Space

DESCRIPTION = "Human ranks to pretrain on (null: all except the target, which is always included)."
OPTION = (list[str] | None, Field(None, description=DESCRIPTION))
WORDS = "human labels"
STYLE = ("#1f7fd0", "o")


def spaces(option: list[str] | None, samples: Any) -> Iterator[Space]:
    for rank in [rank for rank in samples.ranks if rank != samples.target] if option is None else option:
        yield Space(f"manual-{rank}", "manual", {"rank": rank})


def check(option: list[str] | None, config: Any) -> Iterator[str]:
    for rank in option or ():
        if rank not in config.samples.ranks:
            yield f"label_spaces.manual: '{rank}' is not one of the ranks {config.samples.ranks}"


def elsewhere(training: Training, images: Frame, rank: str) -> Labels:
    """Return the human classes of one rank, in alphabetical order; -1 for a class without training images."""
    _, names = training.coded(rank)
    number = {name: i for i, name in enumerate(names)}
    column = images[rank].cat
    of_category = np.array([number.get(str(name), -1) for name in column.categories], dtype=np.int32)
    return Labels(of_category[column.codes], names)
