"""Error against the number of pretraining classes: a figure of the core paper beside our results."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from granularity.claims import published
from granularity.look.papers.answers import BASELINE, EntryRows, Tables
from granularity.stages.report import drawing
from granularity.stages.report.series import describe

PAPER, METRIC = "granularity", "error_percent"
PUBLISHED = "Published"
OF_PAPER = "the paper's experiment"
TARGET = "the target's own labels"
COLUMNS = ("panel", "curve", "series", "results", "x", "mean", "std", "n")


class Figure(NamedTuple):
    """A figure of the paper: its `name`, such as "Fig 4"; the `tables` with its numbers; `points`, a row each, in the
    panel `PUBLISHED` and one panel per data set with results; `missing` experiments, each with the command that runs
    it.
    """

    name: str
    tables: list[str]
    points: pd.DataFrame
    missing: list[tuple[str, str]]

    @property
    def file(self) -> str:
        return f"papers_{self.name.lower().replace(' ', '_')}.svg"


def figures(parts: Iterable[EntryRows], tables: Tables) -> list[Figure]:
    """Return the figures whose points are published, with points from the reports found here."""
    entries = [part for part in parts if part.paper == PAPER]
    rows = [row for part in entries for row in part.rows if row["x"] and row["mean"] and row["metric"] == METRIC]
    all_figures = []
    for name in dict.fromkeys(row["figure"] for row in rows if row["figure"]):
        plotted = [row for row in rows if row["figure"] == name]
        about = [part for part in entries if any(row in plotted for row in part.rows)]
        experiments = list({item.name: item for part in about for item in part.experiments}.values())
        data = {item.name: OF_PAPER for item in experiments}
        data |= dict.fromkeys(folder for part in about for folder in part.others(tables))
        reports = {folder: report for folder in data if (report := tables.get(folder))}
        data = {folder: data[folder] or report.images for folder, report in reports.items()}
        folders = {words: ", ".join(item for item in data if data[item] == words) for words in data.values()}
        panels = {folder: f"{folders[words]}: {words}" for folder, words in data.items()}
        missing = [(item.name, f"snakemake{item.options}") for item in experiments if data.get(item.name) != OF_PAPER]
        points = pd.DataFrame([*_published(plotted), *_here(panels, tables)], columns=list(COLUMNS))
        points.insert(0, "figure", name)
        all_figures.append(Figure(name, published.tables(plotted), points, missing))
    return all_figures


def _published(rows: list[Mapping[str, str]]) -> Iterator[dict]:
    first = min((row["setting"] for row in rows), key=len)
    for row in rows:
        tail, baseline = row["setting"].removeprefix(first).strip("; "), row["arm"] == BASELINE
        words = TARGET if baseline else describe(row["arm"]).words
        known = {"panel": PUBLISHED, "curve": f"{words}; {tail}" if tail else words, "results": ""}
        known["series"] = "manual" if baseline else row["arm"]
        yield known | {name: float(row[name] or "nan") for name in ("x", "mean", "std", "n")}


def _here(panels: Mapping[str, str], tables: Tables) -> Iterator[dict]:
    """Yield the arms of some reports; a series that several folders of a panel have is named by its folder."""
    points: dict[tuple, dict] = {}
    folders: dict[tuple, set[str]] = {}
    for folder, panel in panels.items():
        table = tables[folder].table
        rows = table[(table["train_images"] == table["train_images"].max()) & table["granularity"].notna()]
        rows = rows[(rows["transfer"] == rows["transfer"].iloc[0]) & ~rows["series"].isin(["one_pass", "merged"])]
        for row in rows.to_dict("records"):
            curve = TARGET if row["role"] == BASELINE else describe(row["series"]).words
            point = {"panel": panel, "curve": curve, "series": row["series"], "results": folder}
            point |= {"x": float(row["granularity"]), "mean": row["mean"], "std": row["std"], "n": float(row["runs"])}
            key = tuple(point[name] for name in ("panel", "curve", "x", "mean", "n"))
            if key not in points:  # a result shared by two folders is one point
                points[key] = point
                folders.setdefault((panel, curve), set()).add(folder)
    for point in points.values():
        several = len(folders[point["panel"], point["curve"]]) > 1
        yield point | ({"curve": f"{point['curve']}; {point['results']}"} if several else {})


@drawing.styled()
def draw(figure: Figure) -> str:
    """Draw the figure as SVG: a panel of published points, and one for each data set with results."""
    tables = dict(tuple(figure.points.groupby("panel", sort=False)))
    drawn, axes = drawing.two_across(len(tables), 0.4, 4.0)
    for axis, (panel, points) in zip(axes, tables.items(), strict=True):
        _panel(axis, panel, points)
    what = f"{figure.name} of Hong et al.: error against the number of pretraining classes"
    return drawing.svg(drawn, Path(figure.file).stem, what)


def _panel(axis, panel: str, points: pd.DataFrame) -> None:
    before: dict[str, int] = {}
    groups = points.sort_values("x", kind="stable").groupby(["curve", "series"], sort=False)
    for place, ((name, series), curve) in enumerate(groups):
        look = drawing.look(series) | {"markersize": 5, "elinewidth": 0.9, "capsize": 2, "linewidth": 1}
        if name.startswith(TARGET):
            look |= {"mfc": "none", "markersize": 8, "linestyle": ""}
            axis.axhline(curve["mean"].iloc[0], color=look["color"], linestyle=(0, (1, 2)), linewidth=0.9)
        else:  # further curves of one series: other dashes, hollow markers
            number = before[series] = before.get(series, -1) + 1
            dashes = drawing.DASHES[number % len(drawing.DASHES)]
            look |= {"mfc": "none" if number else look["color"], "linestyle": dashes}
        x = curve["x"] * 1.012 ** (place - (len(groups) - 1) / 2)  # shifted slightly so that all bars are visible
        axis.errorbar(x, curve["mean"], curve["std"].fillna(0), label=name, **look)
    axis.set_title(textwrap.fill(panel, 30), fontsize=8, parse_math=False)
    axis.margins(x=0.08)
    drawing.log_counts(axis)
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(axis="y")
    axis.set(xlabel="G: classes in pretraining", ylabel="Validation error (%)")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), fontsize=7)
