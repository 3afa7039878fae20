"""Report: tables, figures and one self-contained HTML page."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.stages.report.options import Page
from granularity.store.artifact import Artifact

READS = (
    "samples",
    "pixels",
    "encoder",
    "embed",
    "duplicates",
    "cluster",
    "hierarchy",
    "pretrain",
    "finetune",
    "measure",
)


def _plan(plan: Planned) -> Iterator[Job]:
    inputs = {stage: tuple(plan.jobs(stage)) for stage in READS}
    inputs["verdicts"] = tuple(plan.jobs("verdicts", name=plan.config.name))
    # Worlds of the theory are options rather than inputs, so that a report never waits for minutes of simulation. Their
    # digests make the report outdated when they change; damaged ones are left out.
    theory = {}
    for job in plan.jobs("verdicts", name="theory"):
        with contextlib.suppress(GranularityError):
            theory[str(plan.folder(job))] = Artifact.peek(plan.folder(job)).digest[:12]
    sections = extensions.names("section")
    families = sorted({space.family for condition in plan.conditions for space in condition.spaces})
    configuration = plan.config.model_dump(mode="json")
    measures = {one.file: one.module() for one in plan.config.measures if plan.config.report.pictures}
    pictures = {name: "measure" for name, module in measures.items() if hasattr(module, "draw")}
    pictures |= {name: "picture" for name in measures if name in extensions.names("picture")}
    options = {"configuration": configuration, "sections": sections, "families": families, "theory": theory}
    options["pictures"] = pictures
    templates = (template(extensions.code("section", name)) for name in sections)
    yield Job("report", {}, options, inputs, files=tuple(str(file) for file in templates if file is not None))


def template(section: str) -> Path | None:
    """Return the template beside a user's own section file; None if there is none, and for the package's sections."""
    file = Path(section).with_suffix(".html.j2")
    return file if section.endswith(".py") and file.is_file() else None


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
    chosen=lambda options: [
        *(("section", name) for name in options.sections),
        *(("family", name) for name in options.families),
        *((room, name) for name, room in options.pictures.items()),
    ],
    gathers=True,
    volatile=True,
    exact=True,
    shows_names=True,
)
