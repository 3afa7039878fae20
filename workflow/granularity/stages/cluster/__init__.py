"""Cluster: k-means on the embedding, over the whole training split or within groups of it."""

import math
from collections.abc import Iterator

from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.stages.cluster.options import Clustering

GPU_FASTER = 100  # upper bound, for few clusters; not measured


def _plan(plan: Planned) -> Iterator[Job]:
    options = plan.config.cluster
    for condition in plan.conditions:
        where = {"condition": condition.name}
        for name in plan.clusterings(condition):
            centroids = sum(map(int, name.split("-")[1:]))
            yield Job(
                "cluster",
                {**where, "clustering": name},
                {"clustering": name, **options.model_dump()},
                {"samples": tuple(plan.jobs("samples", **where)), "embed": tuple(plan.jobs("embed", **where))},
                passes=options.restarts * (options.iterations + 2 * options.resamplings) * centroids,
                parts=options.restarts if name == f"whole-{centroids}" else math.inf,
                slower=1 / GPU_FASTER if plan.config.device == "cuda" else 1.0,
            )


STAGE = Stage(
    name="cluster",
    does="Cluster the training images with k-means.",
    options=Clustering,
    place="{root}/{condition}/cluster/{clustering}",
    files=("assignment.parquet", "centroids.npy", "clusters.parquet"),
    plan=_plan,
    needs=Needs(1000, 12, 15, 0.0006, threads=16, thread_mb=300, gpu=True),
    priority=2,
    message="k-means {wildcards.clustering} of {wildcards.condition}",
    inputs={"samples": "samples", "embed": "embed"},
    seeded=True,
)
