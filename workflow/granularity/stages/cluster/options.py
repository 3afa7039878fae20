"""Options of stage `cluster`: the section of a configuration, and the options of one job."""

import re
from typing import ClassVar

from pydantic import Field, field_validator

from granularity.base.section import Count, Natural, Section


class Cluster(Section):
    later: ClassVar[frozenset[str]] = frozenset({"resamplings", "nearest"})

    iterations: Count = Field(25, description="Maximum number of Lloyd iterations; stops early once nothing moves.")
    restarts: Count = Field(4, description="Random starts; the one with the lowest objective is kept.")
    resamplings: Natural = Field(
        0,
        description="How often to cluster anew only the images nearest to the centroids, and assign all images to the "
        "new centroids. This spreads clusters over rare images (Vo et al. 2024, who do it 10 times).",
    )
    nearest: Count = Field(8, description="How many images of each cluster a resampling takes.")


class Clustering(Cluster):
    """One clustering."""

    clustering: str = Field(
        description="`whole-K`; `superclass-C` for C clusters in each superclass, `class-C` in each class of the "
        "finest rank (all its images if it has fewer than C). With several numbers, such as `whole-10-3`, a tree: ten "
        "clusters (those of `whole-10`), each split into three by k-means on its own images."
    )

    @field_validator("clustering")
    @classmethod
    def _known(cls, name: str) -> str:
        if not re.fullmatch(r"(whole|superclass|class)(-[1-9]\d*)+", name):
            raise ValueError("must be whole-K, superclass-C or class-C, or a tree such as whole-10-3")
        return name
