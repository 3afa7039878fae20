"""Clusters of the CLIP embedding, over the whole training split or within groups. Source: Hong et al., section 4."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from granularity.base.section import Count
from granularity.stages.hierarchy.checks import NOTE, Check, compare, in_one_target_class
from granularity.stages.hierarchy.labels import Frame, Labels, Training, of_clusters
from granularity.stages.hierarchy.space import Space, fewer_than_images
from granularity.store.artifact import Artifact


@dataclass
class KMeans:
    """The family of the clusterings of one scope: `whole`, `superclass` or `class`."""

    name: str
    scope: str
    OPTION: tuple[Any, Any]
    WORDS: str
    STYLE: tuple[str, str]

    def spaces(self, option: list[int], samples: Any) -> Iterator[Space]:
        for clusters in option:
            name = f"{self.name.replace('_', '-')}-{clusters}"
            yield Space(name, self.name, {"clusterings": [f"{self.scope}-{clusters}"]})

    def check(self, option: list[int], config: Any) -> Iterator[str]:
        return fewer_than_images(self.name, option, config)

    def elsewhere(self, training: Training, images: Frame, clusterings: list[str]) -> Labels | None:
        """Return the clusters of one clustering, with its numbering."""
        source = training.clusterings[clusterings[0]]
        return of_clusters(training.clusters(clusterings[0], images), np.arange(len(source.clusters)), source.names())

    def checks(self, space: Artifact, samples: Artifact) -> Iterator[Check]:
        """L5, within superclasses or classes; L6, over the whole set: every image has the label of its cluster."""
        if self.scope != "whole":
            yield in_one_target_class(space)
            return
        name, (clustering,) = space.params["space"], space.params["clusterings"]
        ours = space.table("labels.parquet", ["sample_id", "label"])
        theirs = space.lineage()[clustering].table("assignment.parquet", ["sample_id", "cluster"])
        same = int(((ours["sample_id"] == theirs["sample_id"]) & (ours["label"] == theirs["cluster"])).sum())
        yield compare("L6", f"{name}: images with the label of their cluster in {clustering}", len(theirs), same)
        share = space.json("properties.json")["straddling_classes"]
        expected = "any share; 0.0% where the embedding separates superclasses"
        yield Check("L6", f"{name}: clusters that straddle superclasses", expected, f"{share:.1%}", NOTE)


def _family(scope: str, what: str, words: str, *style: str) -> KMeans:
    name = "kmeans" if scope == "whole" else f"kmeans_{scope}"
    option = list[Count], Field([], description=f"k-means {what}")
    return KMeans(name, scope, option, f"k-means{words}", style)


ALL = (
    _family("whole", "over the whole set: numbers of clusters.", ", whole set", "#9a5fd0", "v"),
    _family("superclass", "in each superclass: clusters in each.", " per superclass", "#14935a", "^"),
    _family("class", "in each class of the finest rank: clusters in each.", " per class", "#5c9a1e", "<"),
)
SEVERAL = {family.name: family for family in ALL}
