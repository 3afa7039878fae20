"""Error against the number of pretraining classes: a figure of the core paper beside what lies here.

A configuration has one encoder, so the two of the paper's Fig. 4 are two folders of results: no report has both.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.claims import published
from granularity.look.papers.experiments import told
from granularity.look.papers.numbers import Part
from granularity.look.papers.trained import BASELINE, Tables
from granularity.store.artifacts import Artifact

if TYPE_CHECKING:
    import pandas as pd

PAPER, METRIC = "granularity", "error_percent"
PUBLISHED = "Published"
TARGET = "the target's own labels"
COLUMNS = ("figure", "panel", "curve", "series", "results", "x", "mean", "std", "n")


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure of the paper.

    Attributes:
        name: such as "Fig 4".
        tables: the tables that hold its numbers, where they are not in the text.
        points: a row per point, :data:`COLUMNS`; the panel :data:`PUBLISHED` and one for each data set with results.
        missing: the experiments that would give its numbers and have no report here, each with its command.
    """

    name: str
    tables: list[str]
    points: pd.DataFrame
    missing: list[tuple[str, str]]

    @property
    def file(self) -> str:
        return f"papers_{self.name.lower().replace(' ', '_')}.svg"


def figures(root: Path, parts: Iterable[Part], tables: Tables, wrong: list[str]) -> list[Figure]:
    """The figures whose points are published, with those of the reports that lie here.

    Args:
        tables: the table of results of each folder's report, see :func:`granularity.look.papers.trained.tables`.
        wrong: takes what cannot be read, a line each.
    """
    import pandas as pd

    own = [part for part in parts if part.paper == PAPER]
    rows = [row for part in own for row in part.rows if row["x"] and row["mean"] and row["metric"] == METRIC]
    found = []
    for name in dict.fromkeys(row["figure"] for row in rows if row["figure"]):
        shown = [row for row in rows if row["figure"] == name]
        about = [part for part in own if any(row in shown for row in part.rows)]
        experiments = list({one.name: one for part in about for one in part.experiments}.values())
        data = {one.name: "the paper's experiment" for one in experiments}
        data |= {group.results: group.data for part in about for group in part.elsewhere}
        data = {folder: words for folder, words in data.items() if tables.get(folder) is not None}
        folders = {words: ", ".join(one for one in data if data[one] == words) for words in data.values()}
        panels = {folder: f"{folders[words]}: {words}" for folder, words in data.items()}
        points = [*_published(shown), *_here(root, panels, tables, wrong)]
        missing = [(one.name, f"snakemake{one.options}") for one in experiments if one.name not in panels]
        frame = pd.DataFrame(points, columns=list(COLUMNS[1:]))
        frame.insert(0, "figure", name)
        found.append(Figure(name, published.tables(shown), frame, missing))
    return found


def _published(rows: list[Mapping[str, str]]) -> Iterator[dict]:
    from granularity.stages.report import series

    first = min((row["setting"] for row in rows), key=len)
    for row in rows:
        tail = row["setting"].removeprefix(first).strip("; ")
        words = TARGET if row["arm"] == BASELINE else series.words(row["arm"])
        known = {"panel": PUBLISHED, "curve": f"{words}; {tail}" if tail else words, "results": ""}
        known |= {"series": "manual" if row["arm"] == BASELINE else row["arm"]}
        numbers = {name: float(row[name] or "nan") for name in ("x", "mean", "std", "n")}
        yield known | numbers


def _here(root: Path, panels: Mapping[str, str], tables: Tables, wrong: list[str]) -> Iterator[dict]:
    """The arms of some reports; a series that several of one panel have is told apart by its encoder."""
    from granularity.stages.report import series

    encoders = {}
    for folder in panels:
        encoders[folder] = folder
        with told(wrong):
            encoders[folder] = _encoder(root / folder / "report") or folder
    seen: dict[tuple, dict] = {}
    for folder, panel in panels.items():
        table = tables[folder]
        rows = table[(table["train_images"] == table["train_images"].max()) & table["granularity"].notna()]
        rows = rows[(rows["transfer"] == rows["transfer"].iloc[0]) & (rows["series"] != "one_pass")]
        for row in rows.to_dict("records"):
            base = row["role"] == BASELINE
            point = {"panel": panel, "curve": TARGET if base else series.words(row["series"])}
            point |= {"series": row["series"], "results": folder, "x": float(row["granularity"])}
            point |= {"mean": row["mean"], "std": row["std"], "n": float(row["runs"])}
            key = tuple(point[name] for name in ("panel", "curve", "x", "mean", "n"))
            seen.setdefault(key, point)  # what two folders share is the same result, and one point
    shared: dict[tuple[str, str], set[str]] = {}
    for point in seen.values():
        shared.setdefault((point["panel"], point["curve"]), set()).add(point["results"])
    for point in seen.values():
        folders = shared[point["panel"], point["curve"]]
        if len(folders) > 1:
            names = [encoders[folder] for folder in folders]
            name = encoders[point["results"]] if len(set(names)) == len(names) else point["results"]
            point = point | {"curve": f"{point['curve']}; {name}"}
        yield point


def _encoder(report: Path) -> str:
    """The encoder behind a report's clusters, such as "RN50"; empty where there is none."""
    found = [one.manifest["params"] for one in Artifact.peek(report).lineage().values() if one.kind == "embed"]
    return Path(found[0]["model"]).stem if found else ""


def draw(figure: Figure) -> str:
    """The figure as SVG: a panel of what was published, and beside it one for each data set with results."""
    import matplotlib as mpl

    from granularity.stages.report import drawing

    tables = dict(tuple(figure.points.groupby("panel", sort=False)))
    rows, cols = math.ceil(len(tables) / 2), min(2, len(tables))
    with mpl.rc_context(drawing.RC):
        drawn, axes = drawing.panels(rows, cols, 0.4 + 4.0 * rows)
        for axis in axes.flat[len(tables) :]:
            axis.set_visible(False)
        for axis, (panel, points) in zip(axes.flat, tables.items(), strict=False):
            _panel(axis, panel, points)
        what = f"{figure.name} of Hong et al.: error against the number of pretraining classes"
        return drawing.svg(drawn, Path(figure.file).stem, what)


def _panel(axis, panel: str, points: pd.DataFrame) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    from granularity.stages.report.figures import DASHES
    from granularity.stages.report.series import style

    before: dict[str, int] = {}
    groups = points.sort_values("x", kind="stable").groupby(["curve", "series"], sort=False)
    for place, ((name, one), curve) in enumerate(groups):
        colour, marker = style(one)
        look = {"color": colour, "marker": marker, "markersize": 5, "elinewidth": 0.9, "capsize": 2, "linewidth": 1}
        if name.startswith(TARGET):
            look |= {"mfc": "none", "markersize": 8, "linestyle": ""}
            axis.axhline(curve["mean"].iloc[0], color=colour, linestyle=(0, (1, 2)), linewidth=0.9)
        else:  # curves of one series: other lines, hollow markers
            number = before[one] = before.get(one, -1) + 1
            look |= {"mfc": "none" if number else colour, "linestyle": DASHES[number % len(DASHES)]}
        x = curve["x"] * 1.012 ** (place - (len(groups) - 1) / 2)  # a little apart, so that all bars can be seen
        axis.errorbar(x, curve["mean"], curve["std"].fillna(0), label=name, **look)
    axis.set_title(textwrap.fill(panel, 36), fontsize=8)
    axis.set_xscale("log")
    axis.margins(x=0.08)
    ticks: list[float] = []
    for one in sorted(points["x"].unique()):
        ticks += [one] if not ticks or one > 1.4 * ticks[-1] else []
    axis.xaxis.set_major_locator(FixedLocator(ticks) if len(ticks) <= 6 else LogLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.grid(axis="y")
    axis.set_xlabel("G: classes in pretraining")
    axis.set_ylabel("Validation error (%)")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), fontsize=7)


def _short(count: float) -> str:
    """A number of classes, such as 500, 22k or 1M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:g}{letter}"
    return f"{count:g}"
