"""Report: tables, figures and one self-contained HTML page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.stage import Job, Needs, Stage
from granularity.stages.report.options import Page
from granularity.store.artifacts import Artifact

READS = ("samples", "pixels", "encoder", "embed", "cluster", "hierarchy", "pretrain", "finetune", "measure")


def _plan(plan: Any) -> Iterator[Job]:
    inputs = {stage: tuple(plan.jobs(stage)) for stage in READS}
    inputs["verdicts"] = tuple(plan.jobs("verdicts", name=plan.config.name))
    families = sorted({space.family for condition in plan.conditions for space in condition.spaces})
    options = {
        "configuration": plan.config.model_dump(mode="json"),
        "families": families,
        "theory": dict(_theory(plan)),
    }
    yield Job("report", {}, options, inputs)


def _theory(plan: Any) -> Iterator[tuple[str, str]]:
    """The worlds whose verdicts lie there: the report shows them as they are.

    They are an option and no input, so that a report never waits for minutes of simulation; their digests make the
    report again when they have changed. Damaged verdicts are left out; `granularity verify` names them.
    """
    for job in plan.jobs("verdicts", name="theory"):
        with contextlib.suppress(GranularityError):
            yield str(plan.folder(job)), Artifact.peek(plan.folder(job)).digest[:12]


STAGE = Stage(
    name="report",
    does="Make tables, figures and the HTML page from everything above.",
    options=Page,
    place="{root}/report",
    files=("report.html",),
    more_files=("figures/*.svg", "tables/*.csv", "tables/*.parquet"),
    plan=_plan,
    needs=Needs(1500, 1, 30, 0.1),
    message="Writing the report",
    inputs={stage: f"{stage}*" for stage in (*READS, "verdicts")},
    chosen=lambda options: [("family", name) for name in options.families],
    gathers=True,
    volatile=True,
    exact=True,
    shows_names=True,
)
