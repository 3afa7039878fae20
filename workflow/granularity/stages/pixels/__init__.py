"""Pixels: every image decoded once, and kept in the size that training reads."""

from collections.abc import Iterator

from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.stages.pixels.options import Pixels

BATCH = 256  # images that a job holds, both encoded and decoded


def _plan(plan: Planned) -> Iterator[Job]:
    options = plan.config.pixels
    for samples in plan.jobs("samples"):
        inputs = {"samples": (samples,)}
        memory = lambda images: 2 * min(images, BATCH) * options.bytes  # noqa: E731
        yield Job("pixels", samples.values, options.asked, inputs, memory=memory)


STAGE = Stage(
    name="pixels",
    does="Decode every image once, and keep it at the size that training reads.",
    options=Pixels,
    place="{root}/{condition}/pixels",
    files=("index.parquet", "moments.json"),
    more_files=("pixels.npy", "shards/*.jpegs"),
    plan=_plan,
    needs=Needs(1000, 1, 15, 20.0, threads=8),
    priority=2,
    message="Decoding the images of {wildcards.condition}",
    inputs={"samples": "samples"},
    asked=lambda options: options.asked,
    exact=True,
)
