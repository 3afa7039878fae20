"""The report: reads every artifact of a configuration, and writes tables, figures and one HTML page."""

import base64
import inspect
from collections import Counter

import jinja2
from markupsafe import Markup

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.stages.report import template, words
from granularity.stages.report.drawing import PAPER
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.pages import HERE, environment
from granularity.stages.report.sections import Part
from granularity.store.task import Task

MACROS = "drawing, file, linked, columns, table, group, badge, chip, over_pairs, leak"
LARGEST = 1_000_000  # most characters of a table that the page itself holds, for download


def run(task: Task) -> None:
    """Write the report of a finished configuration; the task's inputs are all its results, by role.

    Raises GranularityError: an artifact is missing or corrupt, or lacks requested runs; or two sections have a figure
    or a table of the same name.
    """
    loaded = Loaded(task)
    built = {name: extensions.find("section", name).build(loaded) for name in task.options.sections}
    parts = {name: part for name, part in built.items() if part is not None}
    kinds = ("figures", "tables")
    files = Counter(f"{kind}/{name}" for part in parts.values() for kind in kinds for name in getattr(part, kind))
    for twice in (file for file, number in files.items() if number > 1):
        raise GranularityError(f"report: two sections write {twice}; rename it in yours")
    pages = environment(HERE)
    lenders = (
        {} if loaded.results.empty else dict(zip(loaded.results["label"], loaded.results["baseline"], strict=True))
    )
    pages.globals["of"] = lambda row: words.borrowing(row, lenders)
    csv = {name: table.to_csv(index=False) for part in parts.values() for name, table in part.tables.items()}
    small = {name: text.encode() for name, text in csv.items() if len(text) <= LARGEST}
    pages.globals["csv"] = {name: base64.b64encode(text).decode() for name, text in small.items()}
    html = pages.get_template("page.html.j2").render(
        loaded=loaded,
        headline=loaded.headline,
        sections=[_section(pages, loaded, name, part) for name, part in parts.items()],
    )
    with task.create(loaded.artifacts, task.options.model_dump(mode="json")) as writer:
        writer.text("report.html", html)
        for part in parts.values():
            for name, svg in part.figures.items():
                writer.text(f"figures/{name}.svg", svg)
            for name, table in part.tables.items():
                writer.text(f"tables/{name}.csv", csv[name])
                writer.table(f"tables/{name}.parquet", table)


def _section(pages: jinja2.Environment, loaded: Loaded, name: str, part: Part) -> dict[str, str]:
    """Render a section as HTML, with its anchor and heading, by its own template or by the common one."""
    module, code = extensions.find("section", name), extensions.code("section", name)
    file = template(code) or HERE / f"{code.rpartition('.')[2]}.html.j2"
    text = (file if file.is_file() else HERE / "section.html.j2").read_text(encoding="utf-8")
    html = pages.from_string(f"{{% from 'macros.html.j2' import {MACROS} with context %}}{text}").render(
        loaded=loaded,
        about=inspect.getdoc(module) or "",
        figures={name: Markup(svg.replace(PAPER, "var(--paper)")) for name, svg in part.figures.items()},
        tables={name: table.to_dict("records") for name, table in part.tables.items()},
        **part.values,
    )
    return {"name": name, "heading": module.HEADING, "html": Markup(html.strip())}
