"""k-means in each superclass, as fine as leaves no class small. Source: Hong et al., section 4 and appendix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, model_validator

from granularity.base.section import Count, Natural, Section
from granularity.stages.hierarchy.checks import NOTE, Check, compare, in_one_target_class
from granularity.stages.hierarchy.labels import Clustering, Labels, Training
from granularity.stages.hierarchy.options import fewer_than_images, once_each
from granularity.stages.hierarchy.space import Space

if TYPE_CHECKING:
    import pandas as pd

    from granularity.store.artifacts import Artifact


class Rebalanced(Section):
    clusters: list[Count] = Field([2, 4, 8, 16], min_length=1, description="The grid of cluster counts per superclass.")
    thresholds: list[Natural] = Field(
        [12],
        description="One label space per threshold: each superclass takes the largest count of the grid whose smallest "
        "cluster holds more images than this.",
    )
    granularity: list[Count] = Field(
        [],
        description="One label space per number of classes G, in all superclasses together: the threshold whose G is "
        "nearest, found by lowering it step by step.",
    )

    @model_validator(mode="after")
    def _once_each(self):
        once_each("clusters", self.clusters)
        once_each("thresholds", self.thresholds)
        once_each("granularity", self.granularity)
        return self


OPTION = (Rebalanced, Field(Rebalanced()))
WORDS = "rebalanced k-means"
STYLE = ("#0e9db0", "P")
SWEEP = "threshold_sweep.parquet"


def spaces(option: Rebalanced, samples: Any) -> Iterator[Space]:
    grid = [f"superclass-{clusters}" for clusters in sorted(option.clusters)]
    for threshold in option.thresholds:
        yield Space(f"rebalanced-{threshold}", "rebalanced", {"clusterings": grid, "threshold": threshold})
    for classes in option.granularity:
        yield Space(f"rebalanced-G{classes}", "rebalanced", {"clusterings": grid, "classes": classes})


def check(option: Rebalanced, config: Any) -> Iterator[str]:
    yield from fewer_than_images("rebalanced.clusters", option.clusters, config)
    yield from fewer_than_images("rebalanced.granularity", option.granularity, config)


def labels(training: Training, clusterings: list[str], threshold: int | None = None, classes: int = 0) -> Labels:
    """For each superclass, the finest clustering whose smallest cluster still holds more than `threshold` images.

    Where even the coarsest clustering of the grid has a smaller one, the superclass stays one class (C = 1).

    Args:
        threshold: None is :func:`threshold_for` so many `classes`.
    """
    threshold = threshold_for(training, clusterings, classes) if threshold is None else threshold
    superclass, _ = training.coded(training.target)
    values, names, chosen = np.empty(len(training), dtype=np.int32), [], {}
    for number, part in enumerate(_parts(training, clusterings, threshold)):
        members = superclass == number
        values[members] = part.labels(part.clustering and part.clustering.assignment, members)
        names += part.names
        chosen[part.name] = len(part.names)
    return Labels(values, names, notes={"clusters_of_superclass": chosen, "threshold": threshold})


def elsewhere(
    training: Training, others: pd.DataFrame, clusterings: list[str], threshold: int | None = None, classes: int = 0
) -> Labels | None:
    """Labels of other images, by the cluster with the nearest centroid; None where their embedding was not given.

    None for an image of a superclass that no training image has.
    """
    if any(training.clusterings[name].elsewhere is None for name in clusterings):
        return None
    threshold = threshold_for(training, clusterings, classes) if threshold is None else threshold
    superclass = others[training.target].to_numpy(dtype=str)
    values, names = np.full(len(others), -1, dtype=np.int32), []
    for part in _parts(training, clusterings, threshold):
        members = superclass == part.name
        values[members] = part.labels(part.clustering and part.clustering.elsewhere, members)
        names += part.names
    return Labels(values, names)


def threshold_sweep(training: Training, clusterings: list[str]) -> pd.DataFrame:
    """The granularity of the rebalanced space at every threshold.

    Returns:
        One row per stretch of thresholds that give one choice, upwards from 0: `threshold_from`, `threshold_to`
        (null: without end), `granularity`.
    """
    import pandas as pd

    superclass, target_names = training.coded(training.target)
    grid = _Grid.of(training, clusterings, superclass, len(target_names))
    steps = np.unique([0, *grid.smallest[grid.smallest > 0]])
    granularity = []
    for threshold in steps:
        columns = [grid.choose(number, threshold) for number in range(len(target_names))]
        granularity.append(sum(1 if c is None else grid.counts[n, c] for n, c in enumerate(columns)))
    table = pd.DataFrame({"threshold_from": steps, "granularity": np.array(granularity, dtype=np.int64)})
    table = table[table["granularity"].ne(table["granularity"].shift())].reset_index(drop=True)
    table.insert(1, "threshold_to", (table["threshold_from"].shift(-1) - 1).astype("Int64"))
    return table


def threshold_for(training: Training, clusterings: list[str], classes: int) -> int:
    """The largest threshold whose G is nearest to `classes`, as a ratio; of two as near, that of the smaller G."""
    sweep = threshold_sweep(training, clusterings)[::-1]
    row = sweep.loc[np.log(sweep["granularity"] / classes).abs().idxmin()]
    endless = row.isna()["threshold_to"]
    return int(row["threshold_from" if endless else "threshold_to"])


def more_files(training: Training, clusterings: list[str], **_: int) -> dict[str, pd.DataFrame]:
    return {SWEEP: threshold_sweep(training, clusterings)}


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L5, and L7 (how large classes are) from the label files themselves and not from how they were made."""
    yield in_one_target_class(space)
    name, target = space.params["space"], samples.params["target"]
    threshold = space.params["threshold"] if "threshold" in space.params else space.summary["threshold"]
    superclass = samples.table("samples.parquet", ["split", target]).query("split == 'train'")[target].astype("str")
    superclass = superclass.reset_index(drop=True)
    ours = space.table("labels.parquet", ["label"])["label"]
    own = ours.groupby(superclass).agg(lambda part: (part.nunique(), part.value_counts().min()))
    wrong = []
    sources = space.lineage()
    for clustering in space.params["clusterings"]:
        assignment = sources[clustering].table("assignment.parquet", ["cluster"])["cluster"]
        for one, part in assignment.groupby(superclass):
            classes, smallest = own[one]
            if classes >= 2 and smallest <= threshold:
                wrong.append(f"{one}: a class of {smallest}")
            if part.nunique() > classes and part.value_counts().min() > threshold:
                wrong.append(f"{one}: {clustering} would do")
    if not space.table(SWEEP)["granularity"].is_monotonic_decreasing:
        wrong.append("G rises with the threshold")
    what = f"{name}: the finest grid with more than {threshold} images per class"
    yield compare("L7", what, "in every superclass", "; ".join(dict.fromkeys(wrong)) or "in every superclass")
    if "classes" in space.params:
        found = f"{space.summary['granularity']}, at the threshold {threshold}"
        yield Check("L7", f"{name}: G", str(space.params["classes"]), found, NOTE)


@dataclass
class _Part:
    """The labels of one superclass: the clusters of a clustering, from label `first` on; None: it stays one class."""

    name: str
    first: int
    clustering: Clustering | None
    own: np.ndarray  # its clusters in the clustering, ascending

    @property
    def names(self) -> list[str]:
        one = self.clustering is None
        return [self.name] if one else [f"{self.name}, cluster {i}" for i in range(len(self.own))]

    def labels(self, clusters: np.ndarray | None, members: np.ndarray) -> np.ndarray | int:
        """Labels of members of the superclass, whose clusters are known."""
        return self.first if clusters is None else self.first + np.searchsorted(self.own, clusters[members])


def _parts(training: Training, clusterings: list[str], threshold: int) -> list[_Part]:
    superclass, target_names = training.coded(training.target)
    grid = _Grid.of(training, clusterings, superclass, len(target_names))
    parts, first = [], 0
    for number, name in enumerate(target_names):
        column = grid.choose(number, threshold)
        one = None if column is None else training.clusterings[clusterings[column]]
        own = np.zeros(1) if one is None else np.unique(one.assignment[superclass == number])
        parts.append(_Part(str(name), first, one, own))
        first += len(own)
    return parts


@dataclass
class _Grid:
    """How many clusters each superclass has in each clustering, and how many images the smallest holds."""

    counts: np.ndarray  # int64 [superclasses, clusterings]
    smallest: np.ndarray
    finest_first: list[int]

    @classmethod
    def of(cls, training: Training, clusterings: list[str], superclass: np.ndarray, superclasses: int) -> _Grid:
        shape = superclasses, len(clusterings)
        counts, smallest = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for column, name in enumerate(clusterings):
            assignment = training.clusterings[name].assignment.astype(np.int64)
            pairs, sizes = np.unique(superclass * (assignment.max() + 1) + assignment, return_counts=True)
            owner = pairs // (assignment.max() + 1)
            first = np.flatnonzero(np.diff(owner, prepend=-1))
            counts[:, column] = np.diff([*first, len(owner)])
            smallest[:, column] = np.minimum.reduceat(sizes, first)
        asked = [int(name.rsplit("-", 1)[1]) for name in clusterings]
        return cls(counts, smallest, sorted(range(len(asked)), key=lambda column: -asked[column]))

    def choose(self, superclass: int, threshold: int) -> int | None:
        """The column of the clustering that a superclass takes; None: it stays one class."""
        return next((c for c in self.finest_first if self.smallest[superclass, c] > threshold), None)
