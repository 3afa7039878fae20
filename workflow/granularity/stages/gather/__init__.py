"""Gather: the cells of a study in one table, and comparisons over its draws."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.base.stage import Job, Needs, Planned, Stage, jobs_of
from granularity.stages.gather.predictions import complaints
from granularity.store.hashing import digest_of

READS = ("pretrain", "finetune", "measure", "report")


class Options(Section):
    """One study."""

    configuration: dict[str, Any] = Field(description="The keys set in its configuration, without defaults.")
    cells: dict[str, dict[str, Any]] = Field(
        description="For the folder of each cell: its values of the axes, its draw."
    )
    unit: Literal["draw", "backbone"] = Field("draw", description="The unit that intervals are over.")
    title: str = Field("", description="The page's heading.")
    networks: list[str] = Field([], description="Networks, in the order of the configuration.")
    predictions: Path | None = Field(None, description="Predictions written before the run.")


def _plan(plan: Planned) -> Iterator[Job]:
    networks = list(dict.fromkeys(network.name for cell in plan.cells for network in cell.networks))
    if refused := list(complaints(plan, networks)):
        raise GranularityError(*refused)
    inputs = {stage: jobs_of(plan, stage) for stage in READS}
    inputs["verdicts"] = tuple(plan.jobs("verdicts"))
    options = {"configuration": plan.config.given, "cells": plan.axes}
    options |= plan.config.report.model_dump(include={"unit", "title"})
    said = None if plan.config.predictions is None else str(plan.config.predictions)
    options |= {"networks": networks, "predictions": said}
    yield Job("gather", {"name": plan.config.name}, options, inputs, files=(said,) if said else ())


def _outside(options: Options) -> dict[str, str]:
    """Return the digest of the predictions, to identify the version that these results are judged against."""
    return {} if options.predictions is None else {"predictions": digest_of(options.predictions)}


STAGE = Stage(
    name="gather",
    does="Put the numbers of a study's cells into one table, and compare label spaces over its draws.",
    options=Options,
    place="results/{name}/gather",
    files=("runs.parquet", "runs.csv", "comparisons.parquet", "comparisons.csv", "study.html"),
    more_files=("predictions.csv",),
    plan=_plan,
    needs=Needs(1500, 0, 30),
    message="Gathering the cells of {wildcards.name}",
    inputs={stage: f"{stage}*" for stage in (*READS, "verdicts")},
    outside=_outside,
    gathers=True,
    volatile=True,
    exact=True,
    shows_names=True,
    of_study=True,
)
