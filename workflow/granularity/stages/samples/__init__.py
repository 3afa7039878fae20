"""Samples: which images there are, where their bytes lie, their split, and what humans call them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from granularity.base.stage import Job, Needs, Stage
from granularity.stages.samples import options


def _plan(plan: Any) -> Iterator[Job]:
    for condition in plan.conditions:
        chosen = options.of_source(condition.samples) | {"train_size": condition.train_size}
        yield Job(
            "samples",
            {"condition": condition.name},
            chosen,
            files=tuple(options.files(condition.samples)),
            folders=tuple(options.folders(condition.samples)),
        )


STAGE = Stage(
    name="samples",
    does="Make the sample table: which images there are, their split and their human labels.",
    options=options.stage_section,
    place="{root}/{condition}/samples",
    files=("samples.parquet", "taxonomy.parquet"),
    more_files=("findings.parquet", "images.parquet", "wordnet.parquet"),
    plan=_plan,
    needs=Needs(1000, 1, 15, 5.0, threads=8),
    message="Sample table of {wildcards.condition}",
    seeded=True,
    chosen=lambda chosen: [("source", chosen.source)],
    asked=options.asked,
    exact=True,
    outside=options.outside,
)
