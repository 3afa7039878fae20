"""The report: reads every artifact of a configuration, and writes tables, figures and one HTML page."""

from __future__ import annotations

from granularity.stages.report.loaded import load
from granularity.stages.report.page import render
from granularity.stages.report.sections import SECTIONS
from granularity.store.task import Task


def run(task: Task) -> None:
    """Write the report of a finished configuration.

    `report.html`, and its parts by themselves: `figures/*.svg`, `tables/*.csv` and `*.parquet`. Which parts there are
    depends on what there is to show: see :mod:`granularity.stages.report.sections`.

    Args:
        task: `options` is a :class:`granularity.stages.report.options.Page`; the inputs are all results of the
            configuration, by role.

    Raises:
        GranularityError: an artifact is missing or corrupt, or lacks runs that it was asked for.
    """
    loaded = load(task)
    parts = {section: section.build(loaded) for section in SECTIONS if section.applies(loaded)}
    html = render(loaded, parts)
    with task.create(loaded.artifacts, task.options.model_dump(mode="json")) as writer:
        writer.text("report.html", html)
        for part in parts.values():
            for name, svg in part.figures.items():
                writer.text(f"figures/{name}.svg", svg)
            for name, table in part.tables.items():
                table.to_csv(writer.path(f"tables/{name}.csv"), index=False)
                writer.table(f"tables/{name}.parquet", table)
