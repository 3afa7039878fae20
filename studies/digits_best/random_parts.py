"""Labels finer than the finest rank that only memory tells apart: each class cut by chance into parts of equal size.

`label_spaces.random_parts: [4]`: four parts of each class. Classes of fewer images have fewer.
"""

import numpy as np
from pydantic import Field

from granularity.base.section import Count
from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.labels import Labels
from granularity.stages.hierarchy.space import Space

EXTENDS = "family"
OPTION = (list[Count], Field([], description="Parts of each class of the finest rank, drawn by chance."))
WORDS, STYLE = "random parts of each class", ("#8d6e63", "h")


def spaces(option, samples):
    for parts in option:
        yield Space(f"random-parts-{parts}", "random_parts", {"parts": parts})


def labels(training, parts):
    classes, names = training.coded(training.finest)
    rng, values = np.random.default_rng(seed_of(training.seed, "random_parts", parts)), classes * parts
    for one in np.unique(classes):
        images = rng.permutation(np.flatnonzero(classes == one))
        values[images] += np.arange(len(images), dtype=values.dtype) % parts
    return Labels(values.astype(np.int32), [f"{name}, part {i}" for name in names for i in range(parts)])
