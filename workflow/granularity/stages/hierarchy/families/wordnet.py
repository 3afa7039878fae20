"""Synsets of WordNet at level k above an image's own (docs/label_spaces.md). Source: Hong et al., ImageNet21k."""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.data.wordnet import SEPARATOR
from granularity.stages.hierarchy.checks import Check, compare, published
from granularity.stages.hierarchy.labels import Frame, Labels, Training
from granularity.stages.hierarchy.space import Space
from granularity.store.artifact import Artifact

LACKS = "label_spaces.wordnet: needs samples.wordnet, and 'synset' in samples.ranks"
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
IMAGENET_21K = 21_843  # labels, to which the published counts apply


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for level in option:
        yield Space(f"wordnet-{level}", "wordnet", {"level": level})


def check(option: list[int], config: Any) -> Iterator[str]:
    if option and (config.samples.wordnet is None or "synset" not in config.samples.ranks):
        yield LACKS


def elsewhere(training: Training, images: Frame, level: int) -> Labels:
    """Return the synsets `level` steps above each image's own that also occur for training images (any number)."""
    classes = sorted(frozenset().union(*_above(training, training.frame, level)[1]))
    category, above = _above(training, images, level)
    sets = [synsets.intersection(classes) for synsets in above]
    number = {synset: i for i, synset in enumerate(classes)}
    names = [training.graph.label(synset) for synset in classes]
    values = np.array([number[synset] for synsets in sets for synset in sorted(synsets)], dtype=np.int32)
    sizes = np.array([len(synsets) for synsets in sets], dtype=np.int64)
    if (sizes == 1).all():
        return Labels(values[category], names)
    offsets = np.concatenate([[0], np.cumsum(sizes[category])])
    # The pairs of image i are those of its set: consecutive values from the set's first one.
    begin = (np.cumsum(sizes) - sizes)[category]
    pairs = np.repeat(begin - offsets[:-1], sizes[category]) + np.arange(offsets[-1])
    return Labels(values[pairs], names, offsets)


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L1 and L2: numbers of classes above the labels of ImageNet-21k."""
    if len(samples.table("wordnet.parquet", ["synset"])) < IMAGENET_21K:
        return
    level, granularity = f"wordnet level {space.params['level']}", space.json("properties.json")["granularity"]
    for row in published("imagenet21k").itertuples():
        if row.quantity == level:
            yield compare(row.check, f"{space.params['space']}: G", row.published, granularity)


def _above(training: Training, frame: Frame, level: int) -> tuple[np.ndarray, list[frozenset[str]]]:
    """Return each image's number of its category of synsets, and each category's synsets `level` steps above."""
    if training.graph is None or "synset" not in frame:
        raise GranularityError(LACKS)
    column = frame["synset"].array.remove_unused_categories()
    levels = [[training.graph.level(one, level) for one in str(name).split(SEPARATOR)] for name in column.categories]
    return column.codes, [frozenset().union(*one) for one in levels]
