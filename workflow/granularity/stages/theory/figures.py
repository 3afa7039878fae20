"""All figures of the theory, from rows of data: readable at a column's width, colour-blind-safe, reproducible.

A figure is a list of panels (:func:`draw`), a :func:`panel` a list of series: :class:`Curve` (means over seeds of a
measure against another, with a band), :class:`Points` (means over seeds with bars) and :class:`Line` (a reference).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette: distinct for all common kinds of colour vision. Blue and vermilion come first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SPREAD = "means over seeds; bars and bands from the smallest to the largest seed"
COLUMN = 3.4  # inches: one column of a two-column page
STYLE = {"font.family": "DejaVu Sans", "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7}
STYLE |= {"xtick.labelsize": 7, "ytick.labelsize": 7, "lines.linewidth": 1.4, "lines.markersize": 4}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "legend.frameon": False}
STYLE |= {"axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.5, "figure.dpi": 100}
STYLE |= {"svg.hashsalt": "granularity", "svg.fonttype": "none"}


def style() -> ContextDecorator:
    """Return the context in which every figure is drawn and saved, whatever a matplotlibrc says; also a decorator for a
    world's `figures`."""
    return matplotlib.style.context(STYLE, after_reset=True)


def canvas(
    columns: int = 1, rows: int = 1, width: float | None = None, height: float = 2.5
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, left to right, top to bottom; `width` (default: a text column per panel) and
    `height` of a row in inches."""
    figure = Figure(figsize=(width or COLUMN * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


@dataclass
class Curve:
    """The mean of `y` over seeds against `x`, with a band from the smallest to the largest seed."""

    rows: pd.DataFrame  # rows of one arm
    y: str
    label: str = ""
    x: str = "step"
    colour: int | None = None  # also the marker; default: by position in the panel
    style: str = "-"
    mark: bool = False  # also draw markers (for sweeps of a few points)
    each: bool = False  # one line per seed instead

    def draw(self, axes: Axes, colour: int, shift: float) -> None:
        look = {
            "color": COLOURS[colour % len(COLOURS)],
            "marker": MARKERS[colour % len(MARKERS)] if self.mark else None,
        }
        if self.each:
            for number, (_, rows) in enumerate(self.rows.groupby("seed")):
                axes.plot(rows[self.x], rows[self.y], linewidth=0.9, label="" if number else self.label, **look)
            return
        grouped = self.rows.groupby(self.x)[self.y]
        full = grouped.count() == self.rows["seed"].nunique()  # the mean would jump where some seeds have stopped
        mean, low, high = (part[full] for part in (grouped.mean(), grouped.min(), grouped.max()))
        axes.plot(mean.index, mean, self.style, label=self.label, **look)
        axes.fill_between(mean.index, low, high, color=look["color"], alpha=0.25, linewidth=0)


@dataclass
class Points:
    """One point per position: the mean over seeds (or the median), with a bar from the smallest to the largest
    (quartiles); diverged runs are left out."""

    values: Mapping[float, Sequence[float]]
    label: str = ""
    colour: int | None = None
    line: bool = True
    median: bool = False

    def draw(self, axes: Axes, colour: int, shift: float) -> None:
        finite = {x: np.asarray(v, dtype=float)[np.isfinite(v)] for x, v in self.values.items()}
        finite = {x: v for x, v in finite.items() if len(v)}
        if not finite:
            return
        middle = [np.median(v) if self.median else v.mean() for v in finite.values()]
        ends = [np.percentile(v, [25, 75] if self.median else [0, 100]) for v in finite.values()]
        bars = np.array([(max(0, m - low), max(0, high - m)) for m, (low, high) in zip(middle, ends, strict=True)]).T
        x = [place * (1 + shift) if axes.get_xscale() == "log" else place + shift for place in finite]
        style = {"fmt": ("-" if self.line else "") + MARKERS[colour % len(MARKERS)], "capsize": 2, "elinewidth": 1}
        axes.errorbar(x, middle, yerr=bars, color=COLOURS[colour % len(COLOURS)], label=self.label, **style)


@dataclass
class Line:
    """A reference: a curve through points, or a horizontal line at `y` (without `x`), or a vertical one at `x`."""

    x: Any = None
    y: Any = None
    label: str = ""
    style: str = "--"
    colour: int = 6
    marker: str = ""

    def draw(self, axes: Axes, colour: int, shift: float) -> None:
        look = {"color": COLOURS[self.colour], "linestyle": self.style, "linewidth": 1, "label": self.label}
        look |= {"marker": self.marker, "fillstyle": "none"} if self.marker else {}
        if self.x is None:
            axes.axhline(self.y, **look)
        elif self.y is None:
            axes.axvline(self.x, **look)
        else:
            axes.plot(self.x, self.y, **look)


def points(runs: Any, arms: Any, column: str, label: str = "", line: bool = True, **where: Any) -> Points:
    """Return a point per arm, by given or consecutive places, for a measure as in :class:`.statements.Runs`."""
    placed = arms if isinstance(arms, Mapping) else dict(enumerate(arms))
    return Points({place: runs(arm, column, **where) for place, arm in placed.items()}, label, line=line)


def panel(
    *series: Any, log: str = "", ticks: Any = (), yticks: Any = (), legend: str = "", dodge: float = 0.0, **more: Any
) -> Callable[[Axes], None]:
    """Return a function that draws a panel: series in the order of colours, with series of points `dodge` apart.

    `log`: logarithmic axes ("x", "y", "xy"), or "sym": x from 0, linear up to 10. `ticks`, `yticks`: places, labels for
    0, 1, ..., or labels by place. `legend`: its location; empty: none. `more` goes to `Axes.set`.
    """

    def drawn(axes: Axes) -> None:
        if log == "sym":
            axes.set_xscale("symlog", linthresh=10)
        axes.set(**{f"{axis}scale": "log" for axis in log if log != "sym"})
        several = sum(isinstance(item, Points) for item in series)
        place = colour = 0
        for item in series:
            fixed = getattr(item, "colour", None)
            item.draw(axes, colour if fixed is None else fixed, dodge * (place - (several - 1) / 2))
            place += isinstance(item, Points)
            colour += not isinstance(item, Line)
        axes.set(**({"xlim": (0, None)} if log == "sym" else {}) | more)
        for axis, marks in ((axes.xaxis, ticks), (axes.yaxis, yticks)):
            if len(marks):
                words = marks if isinstance(marks, Mapping) else dict(_mark(*item) for item in enumerate(marks))
                axis.set_ticks(list(words), labels=list(words.values()))
                axis.minorticks_off()
        if legend:
            axes.legend(loc=legend)

    return drawn


def _mark(place: int, mark: float | str) -> tuple[float, str]:
    return (place, mark) if isinstance(mark, str) else (mark, f"{mark:g}")


def draw(
    folder: Path,
    name: str,
    *panels: Callable[[Axes], None],
    columns: int = 0,
    width: float | None = None,
    height: float = 2.5,
    note: str = SPREAD,
    legend: int = 0,
) -> None:
    """Draw and write a figure: panels in `columns` (0: one row), a common legend of `legend` columns (0: none)."""
    with style():
        columns = columns or len(panels)
        figure, axes = canvas(columns, math.ceil(len(panels) / columns), width, height)
        for one, place in zip(panels, axes, strict=False):
            one(place)
        if legend:
            shown: dict[str, Any] = {}
            for one in axes:
                for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
                    shown.setdefault(label, handle)
            figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=legend)
        save(figure, folder, name, note)


def save(figure: Figure, folder: Path, name: str, note: str = SPREAD) -> Path:
    """Write `name`.svg into the folder, with a note below and without a date: equal figures have equal bytes."""
    if note:
        figure.supxlabel(note, fontsize=6, color="#555555")
    path = folder / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path
