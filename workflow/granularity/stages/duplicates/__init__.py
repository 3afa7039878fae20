"""Duplicates: pairs of nearly identical images, across splits and within them."""

from collections.abc import Iterator

from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.stages.duplicates.options import Duplicates

IMAGES = 50_000  # images compared with one image in the time stated by `Needs`


def _plan(plan: Planned) -> Iterator[Job]:
    options = plan.config.duplicates
    for condition in plan.conditions if options.by != "no" else ():
        where = {"condition": condition.name}
        inputs = {role: tuple(plan.jobs(role, **where)) for role in ("samples", "pixels", "embed")}
        if options.by == "pixels" or inputs["embed"]:  # images only transferred to are not embedded
            yield Job("duplicates", where, options.asked, inputs, passes=1 + (condition.images or 0) / IMAGES)


STAGE = Stage(
    name="duplicates",
    does="Find pairs of images that are nearly the same, across splits and within them.",
    options=Duplicates,
    place="{root}/{condition}/duplicates",
    files=("findings.parquet",),
    plan=_plan,
    needs=Needs(1500, 1, 15, 1.0),
    message="Near duplicates in {wildcards.condition}",
    inputs={"samples": "samples", "pixels": "pixels", "embed": "embed?"},
    asked=lambda options: options.asked,
)
