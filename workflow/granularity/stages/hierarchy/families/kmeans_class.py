"""k-means in each class of the finest rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from granularity.base.section import Count
from granularity.stages.hierarchy import clustered
from granularity.stages.hierarchy.checks import Check, in_one_target_class
from granularity.stages.hierarchy.options import fewer_than_images
from granularity.stages.hierarchy.space import Space

if TYPE_CHECKING:
    from granularity.store.artifacts import Artifact

OPTION = (list[Count], Field([], description="k-means in each class of the finest rank: clusters in each."))
WORDS = "k-means per class"
STYLE = ("#5c9a1e", "<")
labels = clustered.labels
elsewhere = clustered.elsewhere


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for clusters in option:
        params = {"clusterings": [f"class-{clusters}"]}
        yield Space(f"kmeans-class-{clusters}", "kmeans_class", params)


def check(option: list[int], config: Any) -> Iterator[str]:
    yield from fewer_than_images("kmeans_class", option, config)


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L5: every label lies in one target class, and none is empty."""
    yield in_one_target_class(space)
