"""Drawing: colours, markers, text, and SVG whose bytes depend on the numbers alone, in the page's `currentColor`."""

import io
import re
from collections.abc import Mapping
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
PAPER = "#fffffe"  # inside hollow markers; the page puts its own background there
INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
RC = dict(matplotlib.rc_params_from_file(Path(__file__).with_name("page.mplstyle"), use_default_template=False))
RC |= dict.fromkeys(INKED, INK)
WIDTH = 5.6  # inches; 538 px, which a page scales to what it has
TALLEST = 900  # pixels: a figure is widened until it is as tall, or as its own size where that is more
STEPS = [1, 2, 2.5, 5, 10]  # of ticks
DASHES = ["-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (4, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (2, 1))]


def styled() -> ContextDecorator:
    """The context in which every figure of a page is drawn, whatever a matplotlibrc says; as a decorator, too."""
    return matplotlib.style.context(RC, after_reset=True)


def shorten(text: object, limit: int = 34) -> str:
    """A label that fits: on one line, of printable characters, cut at a limit."""
    text = "".join(character if character.isprintable() else " " for character in str(text))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def svg(figure: Figure, name: str, description: str, legend: Mapping[str, Any] | None = None) -> str:
    """Draw a figure as SVG without dates or outside references, ids beginning with its name, over a legend by words."""
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
    """A figure of the page's width with its axes, rows by columns; the height is in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, cols, squeeze=False, **options)


def two_across(number: int, top: float, height: float, **options):
    """A figure with so many axes, two side by side; the height of a row and what is above them, in inches."""
    rows = -(-number // 2)
    figure, axes = panels(rows, min(2, number), top + height * rows, **options)
    for axis in axes.flat[number:]:
        axis.set_visible(False)
    return figure, axes.flat[:number]


def look(series: str) -> dict[str, Any]:
    """Colour and marker of a series."""
    colour, marker = describe(series).style
    return {"color": colour, "marker": marker, "markersize": 10 if marker == "*" else 5}


def apart(granularity: pd.Series) -> pd.Series:
    """Equal granularities a little apart on a log axis, so that the bars of two families can both be seen."""
    same = granularity.groupby(granularity)
    return granularity * 10 ** (0.018 * (same.cumcount() - (same.transform("size") - 1) / 2))


def log_counts(axis) -> None:
    """Make a logarithmic axis of counts: whole numbers, few enough to be read."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    subs = (1,) if high > 3000 * low else (1, 3) if high > 12 * low else (1, 2, 3, 5, 7)
    axis.xaxis.set_major_locator(LogLocator(base=100 if len(subs) == 1 else 10, subs=subs))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else ""))
    axis.xaxis.set_minor_locator(NullLocator())


def rows(axis, names: list[str], steps: int) -> None:
    """Name the rows of a plot, the first on top, with a grid of values below."""
    axis.set_yticks(range(len(names)), names, parse_math=False)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_locator(MaxNLocator(steps, steps=STEPS))
    axis.grid(axis="x")


def row_name(row, network: str = "") -> str:
    """A label space with its G, and a network where one is given."""
    granularity = "" if pd.isna(row.granularity) else f" (G = {int(row.granularity):,})"
    return shorten(row.space, 48) + granularity + (f", {shorten(network, 20)}" if network else "")


@styled()
def differences(compared: pd.DataFrame, name: str, other: str = "") -> str:
    """Differences of arms from something other, with their intervals; filled where they exclude zero.

    Without `other` the rows' names say what is compared with what.

    `compared`: rows as :func:`granularity.stages.report.loaded.results` has them; `name`: of the figure.
    """
    tables = dict(tuple(compared.groupby("label", sort=False)))
    heights = [len(table) + 1 for table in tables.values()]
    height = 1.1 + 0.29 * len(tables) + 0.21 * sum(heights)
    figure, axes = panels(len(tables), 1, height, sharex=True, height_ratios=heights)
    for axis, (label, table) in zip(axes[:, 0], tables.items(), strict=True):
        axis.axvline(0, color=INK, linewidth=0.9)
        for y, row in enumerate(table.itertuples()):
            own = look(row.series)
            if not np.isnan(row.low):
                axis.plot([row.low, row.high], [y, y], color=own["color"], linewidth=1.6, solid_capstyle="butt")
            fill = own["color"] if row.standing in ("better", "worse") else PAPER
            marker = own | {"markersize": 1.1 * own["markersize"], "linestyle": ""}
            axis.plot(row.difference, y, mfc=fill, mew=1.2, **marker)
        rows(axis, [row_name(row, row.network if row.network != row.baseline else "") for row in table.itertuples()], 6)
        axis.set_title(label, loc="left" if len(label) < 36 else "right")  # a long one reaches over the names
    about = f"Difference from {other}" if other else "Difference"
    axes[-1, 0].set_xlabel(f"{about} (percentage points)", loc="right")
    dot = {"color": INK, "marker": "o", "linestyle": "", "markersize": 5.5}
    legend = {"interval excludes zero": Line2D([], [], mfc=INK, **dot)}
    legend["not significant"] = Line2D([], [], mfc=PAPER, **dot)
    return svg(figure, name, f"{about}, by label space, with 95 % intervals", legend)
