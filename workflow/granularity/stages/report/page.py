"""The HTML page: one file, no request to anywhere, every text escaped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import jinja2
import pandas as pd
from markupsafe import Markup

from granularity.claims.statistics import LEVEL
from granularity.stages.report import series, templates, words
from granularity.stages.report.drawing import PAPER
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part
from granularity.stages.report.statistics import ANSWERS, STANDINGS

HERE = Path(__file__).parent
MACROS = "drawing, columns, table, group, badge, chip, answered, changed, judged"


@dataclass(frozen=True)
class Written:
    """A section as HTML; `name` is its anchor, `link` what leads to it."""

    name: str
    link: str
    heading: str
    html: Markup


def render(loaded: Loaded, parts: dict[ModuleType, Part]) -> str:
    """The page's text: some sections, in their order."""
    environment = templates.environment(HERE)
    environment.filters |= {
        "name": lambda value: "–" if _missing(value) else value,
        "num": number,
        "signed": signed,
        "share": share,
        "count": words.count,
        "listing": words.listing,
    }
    environment.globals |= {"series": series.words, "interval": interval, "level": round(100 * LEVEL)}
    environment.globals |= {"standings": STANDINGS, "answers": ANSWERS}
    return environment.get_template("page.html.j2").render(
        loaded=loaded,
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        headline=words.headline(loaded.results, loaded.comparisons) if len(loaded.results) else None,
        sections=[_write(environment, loaded, section, part) for section, part in parts.items()],
    )


def _write(environment: jinja2.Environment, loaded: Loaded, section: ModuleType, part: Part) -> Written:
    template = environment.from_string(f"{{% from 'macros.html.j2' import {MACROS} with context %}}{section.TEMPLATE}")
    html = template.render(
        loaded=loaded,
        figures={name: _inline(svg) for name, svg in part.figures.items()},
        tables={name: table.to_dict("records") for name, table in part.tables.items()},
        **part.values,
    )
    return Written(section.__name__.rpartition(".")[2], section.LINK, section.HEADING, Markup(html.strip()))


def _inline(svg: str) -> Markup:
    return Markup(svg.replace(PAPER, "var(--paper)"))


# ---------------------------------------------------------------- numbers in words


def _missing(value: object) -> bool:
    return bool(pd.isna(value))


def number(value: float | None, digits: int = 2) -> str:
    """A number with thousands separated; an en dash where there is none."""
    return "–" if _missing(value) else f"{value:,.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign; an en dash where there is none."""
    return "–" if _missing(value) else words.signed(value, digits)


def interval(low: float, high: float) -> str:
    """Both ends of an interval of a difference; an en dash where there is none."""
    return "–" if _missing(low) else f"{words.signed(low)} to {words.signed(high)}"


def share(value: float | None) -> str:
    """A share as a percentage."""
    return "–" if _missing(value) else f"{100 * value:.1f} %"
