"""Pixels: every image decoded once, and kept in the size that training reads."""

from collections.abc import Iterator
from typing import Any

from granularity.base.stage import Job, Needs, Stage
from granularity.stages.pixels.options import Pixels

BATCH = 256  # images that a job holds, as they are kept and decoded


def _plan(plan: Any) -> Iterator[Job]:
    options = plan.config.pixels
    for samples in plan.jobs("samples"):
        held = {"memory": lambda images: 2 * min(images, BATCH) * options.bytes}
        yield Job("pixels", samples.values, options.asked, {"samples": (samples,)}, **held)


STAGE = Stage(
    name="pixels",
    does="Decode every image once, and keep it in the size that training reads.",
    options=Pixels,
    place="{root}/{condition}/pixels",
    files=("index.parquet", "moments.json"),
    more_files=("pixels.npy", "shards/*.jpegs"),
    plan=_plan,
    needs=Needs(1000, 1, 15, 20.0, threads=8),
    message="Decoding the images of {wildcards.condition}",
    inputs={"samples": "samples"},
    asked=lambda options: options.asked,
    exact=True,
)
