"""k-means over the whole training split. Source: Hong et al., section 4 and appendix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from granularity.base.section import Count
from granularity.stages.hierarchy import clustered
from granularity.stages.hierarchy.checks import NOTE, Check, compare
from granularity.stages.hierarchy.options import fewer_than_images
from granularity.stages.hierarchy.space import Space

if TYPE_CHECKING:
    from granularity.store.artifacts import Artifact

OPTION = (list[Count], Field([10, 30, 90], description="k-means over the whole set: numbers of clusters."))
WORDS = "k-means, whole set"
STYLE = ("#9a5fd0", "v")
labels = clustered.labels
elsewhere = clustered.elsewhere


def spaces(option: list[int], samples: Any) -> Iterator[Space]:
    for clusters in option:
        yield Space(f"kmeans-{clusters}", "kmeans", {"clusterings": [f"whole-{clusters}"]})


def check(option: list[int], config: Any) -> Iterator[str]:
    yield from fewer_than_images("kmeans", option, config)


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L6: the labels are the clusters of the whole set.

    How many clusters straddle superclasses is a note: they know nothing of superclasses, and straddle none where the
    embedding tells them apart, as it does where captions name the classes, or where clusters are small.
    """
    name, (clustering,) = space.params["space"], space.params["clusterings"]
    ours = space.table("labels.parquet", ["sample_id", "label"])
    theirs = space.lineage()[clustering].table("assignment.parquet", ["sample_id", "cluster"])
    images = len(theirs)
    same = int(((ours["sample_id"] == theirs["sample_id"]) & (ours["label"] == theirs["cluster"])).sum())
    yield compare("L6", f"{name}: images with the label of their cluster in {clustering}", images, same)
    share = space.json("properties.json")["straddling_classes"]
    expected = "any share; 0.0% where the embedding tells superclasses apart"
    yield Check("L6", f"{name}: clusters that straddle superclasses", expected, f"{share:.1%}", NOTE)
