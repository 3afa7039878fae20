"""The look of every theory figure: readable at a column's width, colour-blind-safe, reproducible."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ContextDecorator
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette: distinct for all common kinds of colour vision. Blue and vermilion come first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SPREAD = "means over seeds; bars and bands from the smallest to the largest seed"
COLUMN = 3.4  # inches: one column of a two-column page
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "legend.frameon": False,
    "figure.dpi": 100,
    "svg.hashsalt": "granularity",
    "svg.fonttype": "none",
}


def style() -> ContextDecorator:
    """The context in which every figure is drawn and saved; as a decorator, of a world's `figures`."""
    return matplotlib.rc_context(STYLE)


def canvas(
    columns: int = 1, rows: int = 1, width: float | None = None, height: float = 2.5
) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, left to right, top to bottom.

    Args:
        columns, rows: number of panels in each direction.
        width: inches; by default, one text column per panel.
        height: inches per row.
    """
    figure = Figure(figsize=(width or COLUMN * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def curve(
    axes: Axes,
    table: pd.DataFrame,
    x: str,
    y: str,
    label: str,
    index: int = 0,
    style: str = "-",
    mark: bool = False,
) -> None:
    """The mean of `y` over seeds against `x`, with a band from the smallest to the largest seed.

    Args:
        axes: the panel.
        table: the rows of one arm.
        label: the arm in words.
        index: which colour and marker.
        mark: draw markers (for sweeps of a few points) beside the line.
    """
    grouped = table.groupby(x)[y]
    full = grouped.count() == table["seed"].nunique()  # where some seeds have stopped, a mean would jump
    mean, low, high = (part[full] for part in (grouped.mean(), grouped.min(), grouped.max()))
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)] if mark else None
    axes.plot(mean.index, mean, style, color=colour, marker=marker, label=label)
    axes.fill_between(mean.index, low, high, color=colour, alpha=0.25, linewidth=0)


def points(
    axes: Axes,
    x: Sequence[float],
    values: Sequence[Sequence[float]],
    label: str,
    index: int = 0,
    line: bool = True,
) -> None:
    """One point per position: mean over seeds, bar from the smallest to the largest; diverged runs are left out."""
    finite = [np.asarray(v, dtype=float)[np.isfinite(v)] for v in values]
    x = [place for place, v in zip(x, finite, strict=True) if len(v)]
    values = [v for v in finite if len(v)]
    if not values:
        return
    mean = np.array([np.mean(v) for v in values])
    bars = np.array([[m - np.min(v), np.max(v) - m] for m, v in zip(mean, values, strict=True)]).T
    axes.errorbar(
        x,
        mean,
        yerr=bars,
        fmt=("-" if line else "") + MARKERS[index % len(MARKERS)],
        color=COLOURS[index % len(COLOURS)],
        capsize=2,
        elinewidth=1,
        label=label,
    )


def save(figure: Figure, folder: Path, name: str, note: str = SPREAD) -> Path:
    """Write `name`.svg into the folder, a note under it, no date in it: the same figure is the same bytes."""
    if note:
        figure.supxlabel(note, fontsize=6, color="#555555")
    path = folder / f"{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path
