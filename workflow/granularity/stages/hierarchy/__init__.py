"""Hierarchy: label spaces from coarse to fine, with class tables and measured properties."""

from collections.abc import Iterator

from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.stages.hierarchy.space import LabelSpace, clusterings, makers, needs


def _plan(plan: Planned) -> Iterator[Job]:
    for condition in plan.conditions:
        where = {"condition": condition.name}
        for space in condition.spaces:
            inputs = {"samples": tuple(plan.jobs("samples", **where))}
            if names := clusterings([space]):
                inputs["cluster"] = tuple(plan.job("cluster", {**where, "clustering": name}) for name in names)
                inputs["embed"] = tuple(plan.jobs("embed", **where))  # so that other images can be assigned to clusters
            inputs |= {role: tuple(plan.jobs(role, **where)) for role in needs(space)}
            yield Job(
                "hierarchy",
                {**where, "space": space.name},
                {"space": space.name, "family": space.family, "params": space.params},
                inputs,
                slower=20.0 if needs(space) else 1.0,  # because images are decoded
            )


STAGE = Stage(
    name="hierarchy",
    does="Make a label space: a label for every training image, its classes and their properties.",
    options=LabelSpace,
    place="{root}/{condition}/hierarchy/{space}",
    files=("labels.parquet", "classes.parquet", "properties.json"),
    more_files=("labels_elsewhere.parquet", "threshold_sweep.parquet", "more_*.parquet"),
    plan=_plan,
    needs=Needs(1000, 2, 15, 1.0),
    message="Label space {wildcards.space} of {wildcards.condition}",
    inputs={"samples": "samples", "cluster": "cluster*", "embed": "embed?", "pixels": "pixels?"},
    seeded=True,
    chosen=lambda options: [("family", name) for name in makers(options)],
)
