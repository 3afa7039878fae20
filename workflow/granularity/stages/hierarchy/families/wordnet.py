"""Synsets of WordNet above an image's own.

Source: Hong et al., ImageNet21k experiments: level k is the k-th synset on the path from a label to its root, or the
root of a shorter path. A synset may have several paths: an image carries the union (docs/label_spaces.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.stages.hierarchy.checks import Check, compare, published
from granularity.stages.hierarchy.labels import Labels, Training
from granularity.stages.hierarchy.space import Space

if TYPE_CHECKING:
    import pandas as pd

    from granularity.store.artifacts import Artifact

OPTION = (
    list[Annotated[int, Field(ge=0, le=100)]],
    Field(
        [],
        description="WordNet levels: level k labels an image with the synsets k steps above its own. Needs "
        "samples.wordnet and the rank `synset`.",
    ),
)
WORDS = "WordNet levels"
STYLE = ("#3f51b5", "o")
SYNSET = "synset"
IMAGENET_21K = 21_843  # labels, of which the published counts are


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for level in option:
        yield Space(f"wordnet-{level}", "wordnet", {"level": level})


def check(option: list[int], config: Any) -> Iterator[str]:
    if option and (config.samples.wordnet is None or SYNSET not in config.samples.ranks):
        yield "label_spaces.wordnet: needs samples.wordnet, and 'synset' in samples.ranks"


def labels(training: Training, level: int) -> Labels:
    """The synsets `level` steps above each image's own: one, or several where paths or labels do not agree."""
    own = _own(training, training.frame)
    sets = _above(training, own, level)
    return _labels(training, own, sets, sorted(frozenset().union(*sets)))


def elsewhere(training: Training, others: pd.DataFrame, level: int) -> Labels:
    """Synsets above other images, without those that lie above no training image: an image may be left with none."""
    known = frozenset().union(*_above(training, _own(training, training.frame), level))
    own = _own(training, others)
    return _labels(training, own, [one & known for one in _above(training, own, level)], sorted(known))


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L1 and L2: the numbers of classes above the labels of ImageNet-21k."""
    if len(samples.table("wordnet.parquet", [SYNSET])) < IMAGENET_21K:
        return
    level, found = f"wordnet level {space.params['level']}", space.json("properties.json")["granularity"]
    for row in published("imagenet21k").itertuples():
        if row.quantity == level:
            yield compare(row.check, f"{space.params['space']}: G", row.published, found)


def _own(training: Training, frame: pd.DataFrame) -> pd.Categorical:
    """The synsets of images; those that no image has are no category."""
    if training.graph is None or SYNSET not in frame:
        raise GranularityError(f"label_spaces.wordnet: needs samples.wordnet and the rank '{SYNSET}' in samples.ranks")
    return frame[SYNSET].array.remove_unused_categories()


def _above(training: Training, own: pd.Categorical, level: int) -> list[frozenset[str]]:
    """For every category, the synsets `level` steps above those that it joins."""
    from granularity.data.wordnet import SEPARATOR

    levels = [[training.graph.level(one, level) for one in str(name).split(SEPARATOR)] for name in own.categories]
    return [frozenset().union(*one) for one in levels]


def _labels(training: Training, own: pd.Categorical, sets: list[frozenset[str]], classes: list[str]) -> Labels:
    number = {synset: i for i, synset in enumerate(classes)}
    names = [training.graph.label(synset) for synset in classes]
    values = np.array([number[synset] for one in sets for synset in sorted(one)], dtype=np.int32)
    sizes = np.array([len(one) for one in sets], dtype=np.int64)
    if (sizes == 1).all():
        return Labels(values[own.codes], names)
    offsets = np.concatenate([[0], np.cumsum(sizes[own.codes])])
    # The pairs of image i are those of its set: consecutive values from where the set begins.
    begin = (np.cumsum(sizes) - sizes)[own.codes]
    pairs = np.repeat(begin - offsets[:-1], sizes[own.codes]) + np.arange(offsets[-1])
    return Labels(values[pairs], names, offsets)
