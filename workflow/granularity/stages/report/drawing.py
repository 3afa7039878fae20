"""Drawing: colours, markers, text, and SVG whose bytes depend on the numbers alone.

Ink is `currentColor`, so that a page may give it the colour of its text; backgrounds are transparent.
"""

from __future__ import annotations

import io
import re

from markupsafe import escape
from matplotlib.figure import Figure

INK = "#1f2329"
PAPER = "#fffffe"  # inside hollow markers; the page puts its own background there
RC = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.3,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "image.interpolation": "none",
    "svg.hashsalt": "granularity",
    **{key: INK for key in ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")},
    "grid.color": INK,
}
WIDTH = 6.2  # inches; 595 px on the page


def shorten(text: object, limit: int = 34) -> str:
    """A label that fits: on one line, of printable characters, cut at a limit."""
    text = "".join(character if character.isprintable() else " " for character in str(text))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def svg(figure: Figure, name: str, description: str) -> str:
    """Draw a figure as SVG without dates, versions or outside references; ids begin with the figure's name."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "currentColor")
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)


def panels(rows: int, cols: int, height: float, **options):
    """A figure of the page's width with its axes, rows by columns; the height is in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, cols, squeeze=False, **options)
