"""Several labels per image: its nearest clusters, or its classes at all levels of one tree.

`nearest-50-3`: the 3 of 50 clusters over the whole set with the nearest centroids, as in MLCD (An et al. 2024).
`levels`: the target class and the class of every finer human rank; `levels-5`: and one of 5 clusters in the finest.
Training uses sigmoids. Only training images have labels.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

from granularity.stages.hierarchy.labels import CHUNK, Labels, Training
from granularity.stages.hierarchy.space import Space, fewer_than_images


def _name(name: str) -> str:
    match = re.fullmatch("levels(?:-[1-9][0-9]{0,8})?|nearest-([1-9][0-9]{0,8})-([1-9][0-9]{0,8})", name)
    if not match or (match[1] and int(match[2]) >= int(match[1])):
        raise ValueError(f"'{name}' must be like nearest-50-3 (the 3 nearest of 50 clusters), levels or levels-5")
    return name


OPTION = (
    list[Annotated[str, AfterValidator(_name)]],
    Field(
        [],
        description="Label spaces with several labels per image. nearest-50-3: the 3 nearest of 50 clusters over the "
        "whole set; levels: its classes from the target to the finest rank; levels-5: and its cluster of 5 in it.",
    ),
)
WORDS = {"nearest": "several nearest clusters", "levels": "all levels at once"}
STYLE = {"nearest": ("#9a5fd0", "3"), "levels": ("#c2479b", "4")}


def series(params: dict[str, Any]) -> str:
    return "nearest" if "nearest" in params else "levels"


def spaces(option: list[str], samples: Any) -> Iterator[Space]:
    for name in option:
        kind, *numbers = name.split("-")
        if kind == "nearest":
            yield Space(name, "several", {"clusterings": [f"whole-{numbers[0]}"], "nearest": int(numbers[1])})
        else:
            yield Space(name, "several", {"clusterings": [f"class-{clusters}" for clusters in numbers]})


def check(option: list[str], config: Any) -> Iterator[str]:
    return fewer_than_images("several", [int(name.split("-")[1]) for name in option if "-" in name], config)


def labels(training: Training, clusterings: list[str], nearest: int | None = None) -> Labels:
    """Return every image's labels, ascending: its `nearest` clusters; or its class at each rank, and any cluster."""
    several = [training.clusterings[name] for name in clusterings]
    if nearest is None:
        ranks = list(training.frame.columns[1:])
        levels = [training.coded(rank) for rank in ranks[ranks.index(training.target) :]]
        levels += [(clustering.assignment, clustering.names()) for clustering in several]
        starts = np.cumsum([0, *(len(names) for _, names in levels[:-1])])
        columns = [codes + start for (codes, _), start in zip(levels, starts, strict=True)]
        values, names = np.stack(columns, 1), [name for _, level_names in levels for name in level_names]
    else:
        centroids, names = several[0].centroids.astype(np.float64), several[0].names()
        lengths, values = (centroids**2).sum(axis=1), np.empty((len(training), nearest), np.int32)
        for start in range(0, len(training), CHUNK):
            vectors = training.embedding[training.at[start : start + CHUNK]]
            order = np.argsort(lengths - 2 * (vectors @ centroids.T), axis=1, kind="stable")
            values[start : start + CHUNK] = np.sort(order[:, :nearest], axis=1)
    offsets = np.arange(0, values.size + 1, values.shape[1])
    return Labels(values.astype(np.int32).ravel(), names, offsets)
