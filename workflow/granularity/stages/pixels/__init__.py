"""Pixels: every image decoded once, and kept in the size that training reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from granularity.base.stage import Job, Needs, Stage
from granularity.stages.pixels.options import Pixels

BATCH = 256  # images that a job holds, as they are kept and decoded


def _plan(plan: Any) -> Iterator[Job]:
    picture = plan.config.pixels.bytes
    for samples in plan.jobs("samples"):
        yield Job(
            "pixels",
            samples.values,
            plan.config.pixels.asked,
            {"samples": (samples,)},
            memory=lambda images: 2 * min(images, BATCH) * picture,
        )


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
