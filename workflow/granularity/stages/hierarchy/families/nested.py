"""Label spaces that refine one another exactly: levels of one tree of clusters.

They are this project's own: granularity varies while the hierarchy stays one tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from granularity.base.errors import GranularityError
from granularity.base.section import Count, Section
from granularity.stages.hierarchy.checks import Check, in_one_target_class
from granularity.stages.hierarchy.clustered import cluster_name, only
from granularity.stages.hierarchy.labels import Clustering, Labels, Training
from granularity.stages.hierarchy.options import fewer_than_images, once_each
from granularity.stages.hierarchy.space import Space

if TYPE_CHECKING:
    import pandas as pd

    from granularity.store.artifacts import Artifact


class Nested(Section):
    """Label spaces that refine one another exactly: levels of one tree of clusters."""

    scope: Literal["whole", "superclass"] = Field(
        "whole", description="One tree over the whole set, or one in each superclass."
    )
    topdown: list[Count] = Field(
        [],
        description="Top-down: [10, 3, 3] makes 10 clusters, splits each into 3 and each of those into 3, and gives "
        "the label spaces topdown-10, topdown-10-3 and topdown-10-3-3 (G = 10, 30, 90).",
    )
    bottomup: list[Count] = Field(
        [],
        description="Bottom-up: [10, 30, 90] makes 90 clusters and merges their centroids to 30 and to 10.",
    )

    @model_validator(mode="after")
    def _once_each(self):
        once_each("bottomup", self.bottomup)
        return self


OPTION = (Nested, Field(Nested()))
WORDS = {"topdown": "k-means tree, split from above", "bottomup": "k-means tree, merged from below"}
STYLE = {"topdown": ("#c2479b", "1"), "bottomup": ("#c2479b", "2")}


def series(params: dict[str, Any]) -> str:
    return params["direction"]


def spaces(option: Nested, samples: Any) -> Iterator[Space]:
    within = "" if option.scope == "whole" else f"-{option.scope}"
    tree = "-".join(map(str, [option.scope, *option.topdown]))
    for level in range(1, len(option.topdown) + 1):
        name = "-".join(map(str, option.topdown[:level]))
        params = {"direction": "topdown", "clusterings": [tree], "level": level}
        yield Space(f"topdown{within}-{name}", "nested", params)
    finest = f"{option.scope}-{max(option.bottomup, default=0)}"
    for classes in option.bottomup:
        params = {"direction": "bottomup", "clusterings": [finest], "classes": classes}
        yield Space(f"bottomup{within}-{classes}", "nested", params)


def check(option: Nested, config: Any) -> Iterator[str]:
    yield from fewer_than_images("nested.topdown", option.topdown, config)
    yield from fewer_than_images("nested.bottomup", option.bottomup, config)


def labels(training: Training, direction: str, clusterings: list[str], **at: int) -> Labels:
    """One level of a tree, split from above or merged from below."""
    one = only(training, clusterings)
    label_of_cluster, names = TREES[direction](one, **at)
    return Labels(label_of_cluster[one.assignment], names)


def elsewhere(
    training: Training, others: pd.DataFrame, direction: str, clusterings: list[str], **at: int
) -> Labels | None:
    """Labels of other images, by the cluster with the nearest centroid; None where their embedding was not given."""
    one = only(training, clusterings)
    if one.elsewhere is None:
        return None
    label_of_cluster, names = TREES[direction](one, **at)
    return Labels(np.where(one.elsewhere < 0, -1, label_of_cluster[one.elsewhere]).astype(np.int32), names)


def topdown(one: Clustering, level: int) -> tuple[np.ndarray, list[str]]:
    """One level of a tree of clusters, whose levels each split every cluster of the level above by k-means.

    Returns:
        The label int32 of each cluster, and the names of the labels.
    """
    column = f"level_{level}"
    if column not in one.clusters:
        raise GranularityError(f"label_spaces.nested: the tree of clusters has no level {level}")
    nodes = one.clusters.drop_duplicates(column).sort_values(column)
    names = [cluster_name(*pair) for pair in zip(nodes[column], nodes["superclass"], strict=True)]
    return one.clusters[column].to_numpy(dtype=np.int32), names


def bottomup(one: Clustering, classes: int) -> tuple[np.ndarray, list[str]]:
    """The centroids of a clustering merged into `classes` groups (within each superclass, if it is one per superclass).

    Ward's method on the centroids, each counting once. Every number of groups is a cut of the same dendrogram, so
    fewer are always a merging of more.

    Returns:
        As :func:`topdown`.
    """
    merged = np.empty(len(one.clusters), dtype=np.int32)
    names: list[str] = []
    for within, members in one.groups().items():
        groups_here = _cut(one.centroids[members], min(classes, len(members)))
        merged[members] = groups_here + len(names)
        names += [cluster_name(len(names) + i, within) for i in range(groups_here.max() + 1)]
    return merged, names


TREES = {"topdown": topdown, "bottomup": bottomup}


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L5, where there is a tree in each superclass: every label lies in one target class."""
    if space.params["clusterings"][0].startswith("superclass"):
        yield in_one_target_class(space)


def _cut(centroids: np.ndarray, groups: int) -> np.ndarray:
    """Group numbers 0.. of centroids, by first member, from Ward's dendrogram."""
    import pandas as pd
    from scipy.cluster.hierarchy import cut_tree, linkage

    if len(centroids) == 1:
        return np.zeros(1, dtype=np.int32)
    tree = linkage(centroids.astype(np.float64), "ward")
    return pd.factorize(cut_tree(tree, groups)[:, 0])[0].astype(np.int32)
