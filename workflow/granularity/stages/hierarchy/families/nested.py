"""Label spaces that refine one another exactly: levels of one tree of clusters (this project's own)."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

from granularity.base.errors import GranularityError
from granularity.stages.hierarchy.checks import Check, in_one_target_class
from granularity.stages.hierarchy.labels import (
    Clustering,
    Frame,
    Labels,
    Training,
    cluster_name,
    of_clusters,
)
from granularity.stages.hierarchy.space import Space, fewer_than_images
from granularity.store.artifact import Artifact


def _tree(name: str) -> str:
    if not re.fullmatch("(topdown|bottomup)(-superclass)?(-[1-9][0-9]{0,8})+", name):
        raise ValueError(f"'{name}' is not a tree such as topdown-10-3-3, bottomup-10-30-90 or topdown-superclass-2-3")
    return name


OPTION = (
    list[Annotated[str, AfterValidator(_tree)]],
    Field(
        [],
        description="Trees whose levels refine one another exactly. topdown-10-3-3 makes 10 clusters, splits each into "
        "3 and each of those into 3, and gives the label spaces topdown-10, topdown-10-3 and topdown-10-3-3 (G = 10, "
        "30, 90). bottomup-10-30-90 makes 90 clusters and merges their centroids to 30 and to 10. "
        "topdown-superclass-2-3: a tree in each superclass.",
    ),
)
WORDS = {"topdown": "k-means tree, split from above", "bottomup": "k-means tree, merged from below"}
STYLE = {"topdown": ("#c2479b", "1"), "bottomup": ("#c2479b", "2")}


def series(params: dict[str, Any]) -> str:
    return params["direction"]


def spaces(option: list[str], samples: Any) -> Iterator[Space]:
    for tree in option:
        start, scope, numbers = _parts(tree)
        direction = start.partition("-")[0]
        for i, classes in enumerate(numbers):
            if direction == "topdown":
                name = "-".join(map(str, [start, *numbers[: i + 1]]))
                params = {"clusterings": ["-".join(map(str, [scope, *numbers]))], "level": i + 1}
            else:
                name, params = f"{start}-{classes}", {"clusterings": [f"{scope}-{max(numbers)}"], "classes": classes}
            yield Space(name, "nested", {"direction": direction, **params})


def _parts(tree: str) -> tuple[str, str, list[int]]:
    """Return the prefix of its label spaces' names, its scope (whole or superclass), and its numbers."""
    words = tree.split("-")
    start = words[: 1 + (words[1] == "superclass")]
    return "-".join(start), "whole" if len(start) == 1 else start[1], list(map(int, words[len(start) :]))


def check(option: list[str], config: Any) -> Iterator[str]:
    for tree in option:
        yield from fewer_than_images("nested", _parts(tree)[2], config)


def elsewhere(training: Training, images: Frame, direction: str, clusterings: list[str], **at: int) -> Labels | None:
    """Return one level of a tree, split from above or merged from below."""
    source = training.clusterings[clusterings[0]]
    return of_clusters(training.clusters(clusterings[0], images), *TREES[direction](source, **at))


def topdown(one: Clustering, level: int) -> tuple[np.ndarray, list[str]]:
    """Return one level of a tree of clusters: the label int32 of each cluster, and the names of the labels."""
    column = f"level_{level}"
    if column not in one.clusters:
        raise GranularityError(f"label_spaces.nested: the tree of clusters has no level {level}")
    return one.clusters[column].to_numpy(dtype=np.int32), one.names(column)


def bottomup(one: Clustering, classes: int) -> tuple[np.ndarray, list[str]]:
    """As :func:`topdown`, with centroids merged into `classes` groups (within each superclass, for a tree in each).

    Ward's method on the centroids, each counting once. All numbers of groups are cuts of the same dendrogram, so fewer
    groups are always a merging of more.
    """
    merged, names = np.empty(len(one.clusters), dtype=np.int32), []
    for within, members in one.groups().items():
        groups_here = _cut(one.centroids[members], min(classes, len(members)))
        merged[members] = groups_here + len(names)
        names += [cluster_name(len(names) + i, within) for i in range(groups_here.max() + 1)]
    return merged, names


TREES = {"topdown": topdown, "bottomup": bottomup}


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L5, if there is a tree in each superclass."""
    if space.params["clusterings"][0].startswith("superclass"):
        yield in_one_target_class(space)


def _cut(centroids: np.ndarray, groups: int) -> np.ndarray:
    """Return group numbers 0.. of centroids, in order of first members, from Ward's dendrogram."""
    import pandas as pd
    from scipy.cluster.hierarchy import cut_tree, linkage

    if len(centroids) == 1:
        return np.zeros(1, dtype=np.int32)
    tree = linkage(centroids.astype(np.float64), "ward")
    return pd.factorize(cut_tree(tree, groups)[:, 0])[0].astype(np.int32)
