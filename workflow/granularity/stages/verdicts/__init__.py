"""Verdicts: what papers claim, held against what was measured, of one world of the theory or one study of images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from granularity.base import extensions
from granularity.base.stage import Job, Needs, Stage
from granularity.claims import preregistered, published
from granularity.data.listing import contents
from granularity.stages.verdicts.options import Options, papers_of, room_of

READS = ("samples", "hierarchy", "pretrain", "finetune", "measure")


def _plan(plan: Any) -> Iterator[Job]:
    for world in extensions.names("world"):
        parts = tuple(plan.jobs("theory", world=world))
        yield Job("verdicts", {"name": "theory", "study": world}, {"study": world}, {"theory": parts}, _files(world))
    for study in plan.config.studies:
        module = extensions.find("study", study)
        reads = {read.partition("/")[0] for read in module.READS} | {"samples"}
        inputs = {role: tuple(plan.jobs(role)) for role in READS if role in reads}
        yield Job("verdicts", {"name": plan.config.name, "study": study}, {"study": study}, inputs, _files(study))


def _files(study: str) -> tuple[str, ...]:
    """Papers' rows, and a preregistration. Relative: Snakemake takes the file of a checkout that moved for another."""
    files = [*map(published.file_of, papers_of(study)), preregistered.file_of(study)]
    return tuple(os.path.relpath(file) for file in files if file is not None)


def _outside(options: Options) -> dict[str, str]:
    """The digests of a preregistration and of papers' rows, by name: the path is that of the checkout."""
    files = {str(published.file_of(paper)): paper for paper in papers_of(options.study)}
    found = {files[file]: digest for file, digest in contents(files).items()}
    if digest := preregistered.digest_of(options.study):
        found[f"preregistration of {options.study}"] = digest
    return found


STAGE = Stage(
    name="verdicts",
    does="Judge every claim of a study or of a world of the theory, and draw its figures.",
    options=Options,
    place="results/{name}/verdicts/{study}",
    files=("checks.csv",),
    more_files=("runs.parquet", "settings.json", "figures/*.svg"),
    plan=_plan,
    needs=Needs(1500, 0, 60),
    message="Judging the claims of {wildcards.study}",
    inputs={"theory": "theory*", **{stage: f"{stage}*" for stage in READS}},
    outside=_outside,
    chosen=lambda options: [(room_of(options.study), options.study)],
    shows_names=True,
)
