"""Drawing: colours, markers, text, and SVG whose bytes depend only on the numbers, in the page's `currentColor`."""

import io
import re
from collections.abc import Iterable, Mapping
from contextlib import ContextDecorator
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from markupsafe import escape
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from granularity.stages.report.series import describe

INK = "#1f2329"
PAPER = "#fffffe"  # inside hollow markers; the page replaces it by its background
INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
RC = dict(matplotlib.rc_params_from_file(Path(__file__).with_name("page.mplstyle"), use_default_template=False))
RC |= dict.fromkeys(INKED, INK)
WIDTH = 5.6  # inches, i.e. 538 px, which a page scales to the space that it has
TALLEST = 900  # pixels: a figure may grow wider until it is this tall (or its own size, if larger)
APART = 0.07  # least distance between ticks, as a share of the axis
STEPS = [1, 2, 2.5, 5, 10]  # of ticks
DASHES = ["-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (4, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (2, 1))]


def styled() -> ContextDecorator:
    """Return the context, also a decorator, in which every figure of a page is drawn, whatever a matplotlibrc says."""
    return matplotlib.style.context(RC, after_reset=True)


def shorten(text: object, limit: int = 34) -> str:
    """Shorten a label to one line of printable characters, cut at a limit."""
    text = "".join(character if character.isprintable() else " " for character in str(text))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def svg(figure: Figure, name: str, description: str, legend: Mapping[str, Any] | None = None) -> str:
    """Render a figure, over a legend, as SVG without dates or outside references; ids begin with its name."""
    if legend:
        columns = 2 if max(map(len, legend)) < 38 else 1
        figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=columns)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "currentColor")
    width, height = 96 * figure.get_size_inches()
    style = f'style="max-width: {width * max(1, TALLEST / height):.0f}px"'
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" {style} ', 1)


def panels(rows: int, cols: int, height: float, **options):
    """Return a figure of the page's width and its axes, rows by columns; the height is in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, cols, squeeze=False, **options)


def two_across(number: int, top: float, height: float, **options):
    """Return a figure with `number` axes, two side by side; `height` of a row and `top` above them in inches."""
    rows = -(-number // 2)
    figure, axes = panels(rows, min(2, number), top + height * rows, **options)
    for axis in axes.flat[number:]:
        axis.set_visible(False)
    return figure, axes.flat[:number]


def look(series: str) -> dict[str, Any]:
    """Return the colour and marker of a series."""
    colour, marker = describe(series).style
    return {"color": colour, "marker": marker, "markersize": 10 if marker == "*" else 5}


def apart(granularity: pd.Series) -> pd.Series:
    """Spread equal granularities slightly on a log axis, so that the bars of two families are both visible."""
    same = granularity.groupby(granularity)
    return granularity * 10 ** (0.018 * (same.cumcount() - (same.transform("size") - 1) / 2))


def log_counts(axis, counts: Iterable[float] = ()) -> None:
    """Make an axis of counts logarithmic, with whole numbers that are few enough to read: `counts`, or round ones."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    if ticks := spread(counts, low, high):
        axis.set_xticks(ticks, [f"{one:,.0f}" for one in ticks])
        axis.xaxis.set_minor_locator(NullLocator())
        return
    subs = (1,) if high > 3000 * low else (1, 3) if high > 12 * low else (1, 2, 3, 5, 7)
    axis.xaxis.set_major_locator(LogLocator(base=100 if len(subs) == 1 else 10, subs=subs))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else ""))
    axis.xaxis.set_minor_locator(NullLocator())


def spread(counts: Iterable[float], low: float, high: float) -> list[float]:
    """Return those of `counts` that can be read beside each other on a logarithmic axis from `low` to `high`."""
    ticks: list[float] = []
    for one in sorted(set(counts)):
        if not ticks or np.log(one / ticks[-1]) > APART * np.log(high / low):
            ticks.append(one)
    return ticks


def rows(axis, names: list[str], steps: int) -> None:
    """Name the rows of a plot, the first on top, with a vertical grid of values."""
    axis.set_yticks(range(len(names)), names, parse_math=False)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_locator(MaxNLocator(steps, steps=STEPS))
    axis.grid(axis="x")


def row_name(row, network: str = "") -> str:
    """Return a label space with its G, and with the network if one is given."""
    granularity = "" if pd.isna(row.granularity) else f" (G = {int(row.granularity):,})"
    return shorten(row.space, 48) + granularity + (f", {shorten(network, 20)}" if network else "")


@styled()
def differences(compared: pd.DataFrame, name: str, other: str = "", sharex: bool = True) -> str:
    """Draw differences of arms from `other` with their intervals; markers are filled if the interval excludes zero.

    Without `other`, the rows' names say what is compared with what.

    `compared`: rows of :func:`granularity.stages.report.loaded.results`; `name`: the figure's name; `sharex`: whether
    all panels share one axis, on which a wide panel may hide what a narrow one shows.
    """
    tables = dict(tuple(compared.groupby("label", sort=False)))
    heights = [len(table) + 1 for table in tables.values()]
    height = 1.1 + (0.29 if sharex else 0.45) * len(tables) + 0.21 * sum(heights)
    figure, axes = panels(len(tables), 1, height, sharex=sharex, height_ratios=heights)
    for axis, (label, table) in zip(axes[:, 0], tables.items(), strict=True):
        axis.axvline(0, color=INK, linewidth=0.9)
        for y, row in enumerate(table.itertuples()):
            style = look(row.series)
            if not np.isnan(row.low):
                axis.plot([row.low, row.high], [y, y], color=style["color"], linewidth=1.6, solid_capstyle="butt")
            fill = style["color"] if row.standing in ("better", "worse") else PAPER
            marker = style | {"markersize": 1.1 * style["markersize"], "linestyle": ""}
            axis.plot(row.difference, y, mfc=fill, mew=1.2, **marker)
        rows(axis, [row_name(row, row.network if row.network != row.baseline else "") for row in table.itertuples()], 6)
        axis.set_title(label, loc="left" if len(label) < 36 else "right")  # a long title extends over the names
    about = f"Difference from {other}" if other else "Difference"
    axes[-1, 0].set_xlabel(f"{about} (percentage points)", loc="right")
    dot = {"color": INK, "marker": "o", "linestyle": "", "markersize": 5.5}
    legend = {"interval excludes zero": Line2D([], [], mfc=INK, **dot)}
    legend["not significant"] = Line2D([], [], mfc=PAPER, **dot)
    return svg(figure, name, f"{about}, by label space, with 95 % intervals", legend)
