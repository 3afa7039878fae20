"""Clusters of classes, regrouped at random: labels that can be learnt, but tell almost nothing about the finest rank.

Each class of the finest rank is cut into C clusters; each of the C labels of a superclass takes one random cluster of
each of its classes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Count
from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.checks import Check, in_one_target_class
from granularity.stages.hierarchy.labels import Frame, Labels, Training, of_clusters
from granularity.stages.hierarchy.space import Space, fewer_than_images
from granularity.store.artifact import Artifact

OPTION = (
    list[Count],
    Field(
        [],
        description="A learnable control: clusters of each class of the finest rank, regrouped by chance into as many "
        "labels per superclass.",
    ),
)
WORDS, STYLE, MEANINGLESS = "regrouped clusters", ("#c2569b", "P"), True


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for count in option:
        yield Space(f"regrouped-{count}", "regrouped", {"clusterings": [f"class-{count}"]})


def check(option: list[int], config: Any) -> Iterator[str]:
    return fewer_than_images("regrouped", option, config)


def elsewhere(training: Training, images: Frame, clusterings: list[str]) -> Labels | None:
    """Give each cluster a random label of its superclass; a class of fewer than C clusters has only some labels."""
    (name,) = clusterings
    count, clustering = int(name.removeprefix("class-")), training.clusterings[name]
    targets, names = training.coded(training.target)
    classes, class_names = training.coded(training.finest)
    superclass = dict(zip(class_names[classes], targets, strict=True))
    if straddling := [name for name, of in zip(class_names[classes], targets, strict=True) if superclass[name] != of]:
        raise GranularityError(f"regrouped: images of '{straddling[0]}' are of several classes of {training.target}")
    label = np.empty(len(clustering.clusters), dtype=np.int32)
    for class_name, clusters in clustering.groups().items():
        drawn = np.random.default_rng(seed_of(training.seed, "regrouped", count, class_name)).permutation(count)
        label[clusters] = superclass[class_name] * count + drawn[: len(clusters)]
    called = [f"{target}, regrouped {i}" for target in names for i in range(count)]
    return of_clusters(training.clusters(name, images), label, called)


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L5; a label that no cluster was drawn for may be empty."""
    yield in_one_target_class(space, empty_allowed=True)
