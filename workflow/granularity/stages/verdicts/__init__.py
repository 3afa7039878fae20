"""Verdicts: what papers claim, compared with what was measured, for one world of the theory or one study of images."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Name, Section
from granularity.base.stage import Job, Needs, Planned, Stage, jobs_of
from granularity.claims import preregistered, published
from granularity.data.listing import contents

ROOMS = ("world", "study")
PAPERS = {"label_granularity": "granularity"}  # worlds whose paper has another name
READS = ("samples", "hierarchy", "pretrain", "finetune", "measure")


class Options(Section):
    """One study to judge."""

    study: Name = Field(description="A world of the theory (docs/theory.md), or a study of images (docs/studies.md).")
    cells: dict[str, dict[str, Any]] = Field(
        {},
        description="Cells of a study that is judged over its draws: for each folder, its axes and draw.",
    )
    unit: Literal["draw", "backbone"] = Field("draw", description="The unit that intervals are over, with cells.")


def room_of(study: str) -> str:
    """Return the kind of extension (see :mod:`granularity.base.extensions`) that has the study: `world` or `study`."""
    names = {room: extensions.names(room) for room in ROOMS}
    rooms = [room for room in ROOMS if study in names[room]]
    if not rooms:
        studies = ", ".join(name for several in names.values() for name in several)
        raise GranularityError(f"verdicts: there is no study '{study}'; there are {studies}")
    if len(rooms) > 1:
        raise GranularityError(
            f"verdicts: '{study}' names both a world of the theory and a study; rename the study's file"
        )
    return rooms[0]


def papers_of(study: str) -> tuple[str, ...]:
    """Return the papers whose published rows a study uses; a world's by name, because importing one takes seconds."""
    if room_of(study) == "study":
        return extensions.find("study", study).PUBLISHED
    paper = PAPERS.get(study, study)
    return (paper,) if paper in published.papers() else ()


def _plan(plan: Planned) -> Iterator[Job]:
    for world in extensions.names("world") if not plan.cells else ():
        parts = tuple(plan.jobs("theory", world=world))
        yield Job("verdicts", {"name": "theory", "study": world}, {"study": world}, {"theory": parts}, _files(world))
    for study in plan.config.studies:
        module = extensions.find("study", study)
        reads = {read.partition("/")[0] for read in module.READS} | {"samples"}
        inputs = {role: jobs_of(plan, role) for role in READS if role in reads}
        options = {"study": study} | ({"cells": plan.axes, "unit": plan.config.report.unit} if plan.cells else {})
        yield Job("verdicts", {"name": plan.config.name, "study": study}, options, inputs, _files(study))


def _files_by_name(study: str) -> dict[str, Path]:
    """Return papers' rows, and claims in words, by name."""
    files: dict[str, Path | None] = {paper: published.file_of(paper) for paper in papers_of(study)}
    files |= {f"claims of {study}": preregistered.statements_of(study)}
    return {name: file for name, file in files.items() if file is not None}


def _files(study: str) -> tuple[str, ...]:
    """Return their relative paths, because absolute ones change if a checkout moves."""
    return tuple(map(os.path.relpath, _files_by_name(study).values()))


def _outside(options: Options) -> dict[str, str]:
    """Return the digests of these files, by name, because their paths depend on the checkout."""
    files = _files_by_name(options.study)
    return dict(zip(files, contents(files.values()).values(), strict=True))


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
    asked=lambda options: options.model_dump(mode="json", exclude=set() if options.cells else {"cells", "unit"}),
    shows_names=True,
    of_study=None,
)
