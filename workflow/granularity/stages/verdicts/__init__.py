"""Verdicts: what papers claim, held against what was measured, of one world of the theory or one study of images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from granularity.base import extensions
from granularity.base.stage import Job, Needs, Stage
from granularity.claims import preregistered, published
from granularity.data.listing import contents
from granularity.stages.verdicts.options import Options, room_of

READS = ("samples", "hierarchy", "pretrain", "finetune", "measure")


def _plan(plan: Any) -> Iterator[Job]:
    for world in extensions.names("world"):
        parts = tuple(plan.jobs("theory", world=world))
        own = preregistered.file_of(world)
        files = () if own is None else (os.path.relpath(own),)
        yield Job("verdicts", {"name": "theory", "study": world}, {"study": world}, {"theory": parts}, files)
    for study in plan.config.studies:
        module = extensions.find("study", study)
        reads = {read.partition("/")[0] for read in module.READS} | {"samples"}
        inputs = {role: tuple(plan.jobs(role)) for role in READS if role in reads}
        # Relative: Snakemake takes the file of a checkout that has moved for another one.
        papers = tuple(os.path.relpath(published.file_of(name)) for name in module.PUBLISHED)
        yield Job("verdicts", {"name": plan.config.name, "study": study}, {"study": study}, inputs, papers)


def _outside(options: Options) -> dict[str, str]:
    """The digest of a preregistration, and of each paper's rows, by name: the path is that of the checkout."""
    room = room_of(options.study)
    if room == "world":
        digest = preregistered.digest_of(options.study)
        return {} if digest is None else {f"preregistration of {options.study}": digest}
    study = extensions.find(room, options.study)
    files = {str(published.file_of(name)): name for name in study.PUBLISHED}
    return {files[file]: digest for file, digest in contents(files).items()}


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
