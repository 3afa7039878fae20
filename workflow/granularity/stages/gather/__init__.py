"""Gather: the cells of a study in one table, and what is the same over their draws."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from granularity.base.section import Section
from granularity.base.stage import Job, Needs, Stage

READS = ("pretrain", "finetune", "measure", "report")


class Options(Section):
    """One study."""

    configuration: dict[str, Any] = Field(description="What its configuration says, before anything is filled in.")
    cells: dict[str, dict[str, Any]] = Field(description="Folder of each cell: its values of the axes, its draw.")
    unit: Literal["draw", "backbone"] = Field("draw", description="What intervals are over.")
    title: str = Field("", description="The page's heading.")


def _plan(plan: Any) -> Iterator[Job]:
    inputs = {
        stage: tuple(replace(job, at=str(cell.folder(job))) for cell in plan.cells for job in cell.jobs(stage))
        for stage in READS
    }
    options = {"configuration": plan.config.given, "cells": plan.axes}
    options |= plan.config.report.model_dump(include={"unit", "title"})
    yield Job("gather", {"name": plan.config.name}, options, inputs)


STAGE = Stage(
    name="gather",
    does="Put the numbers of a study's cells into one table, and compare label spaces over its draws.",
    options=Options,
    place="results/{name}/gather",
    files=("runs.parquet", "runs.csv", "comparisons.parquet", "comparisons.csv", "study.html"),
    plan=_plan,
    needs=Needs(1500, 0, 30),
    message="Gathering the cells of {wildcards.name}",
    inputs={stage: f"{stage}*" for stage in READS},
    gathers=True,
    volatile=True,
    exact=True,
    shows_names=True,
    of_study=True,
)
