"""Samples: which images there are, where their bytes lie, their split, and their human labels."""

from collections.abc import Iterator

from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.stages.samples import options


def _plan(plan: Planned) -> Iterator[Job]:
    for condition in plan.conditions:
        chosen, where = options.of_source(condition.samples), {"condition": condition.name}
        files, folders = tuple(options.files(condition.samples)), tuple(options.folders(condition.samples))
        chosen |= {"train_size": condition.train_size, "asks": plan.asks(condition)}
        yield Job("samples", where, chosen, files=files, folders=folders)


STAGE = Stage(
    name="samples",
    does="Make the sample table: the images, their split and their human labels.",
    options=options.stage_section,
    place="{root}/{condition}/samples",
    files=("samples.parquet", "taxonomy.parquet"),
    more_files=("findings.parquet", "images.parquet", "wordnet.parquet"),
    plan=_plan,
    needs=Needs(1000, 1, 15, 5.0, threads=8),
    priority=2,
    message="Sample table of {wildcards.condition}",
    seeded=True,
    chosen=lambda chosen: [("source", chosen.source)],
    asked=options.asked,
    exact=True,
    outside=options.outside,
)
