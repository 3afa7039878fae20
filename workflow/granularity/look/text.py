"""Sizes, times and tables as the commands print them, and the output of `granularity published`."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError, printable
from granularity.claims import published

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 80  # columns of a terminal
CELL = 28  # most characters of a text in a table
SHOWN = ("table", "figure", "arm", "x", "metric", "mean", "std", "n", "note")  # below a line for each setting


def size_text(count: float) -> str:
    """Format a number of bytes, such as 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def seconds(number: float | None) -> str:
    """Format a time, such as 1.5 min; a dash if there is none."""
    if number is None or number <= 0:
        return "-"
    if number < 60:
        return f"{number:.1f} s"
    return f"{number / 60:.1f} min" if number < 3600 else f"{number / 3600:.1f} h"


def megabytes(number: float | None) -> str:
    """Format an amount of memory, such as 41.0 GB; a dash if it is not known."""
    return "-" if number is None else f"{number:.0f} MB" if number < 10_000 else f"{number / 1000:.1f} GB"


def table_of(rows: list[list[str]], texts: int = 1000) -> list[str]:
    """Return a line per row; the first `texts` columns are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust if place < texts else str.rjust for place in range(len(widths))]
    return ["  ".join(side(*cell) for side, *cell in zip(sides, row, widths, strict=True)).rstrip() for row in rows]


def tables_of(rows: list[list[str]], texts: int, at: int = 1000) -> list[str]:
    """As :func:`table_of`, but columns that do not fit (from `at` on, or earlier) follow in a second table below."""
    for count in (len(rows[0]), *range(min(at, len(rows[0]) - 1), texts, -1)):
        lines = table_of([row[:count] for row in rows], texts)
        if max(map(len, lines)) <= WIDTH:
            break
    rest = [[*row[:texts], *row[count:]] for row in rows] if count < len(rows[0]) else []
    return [*lines, *(["", *tables_of(rest, texts)] if rest else [])]


def fitted(lines: Iterable[str]) -> list[str]:
    """Break lines that are too wide at spaces; longer words stay whole."""
    found = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())] + "    "
        whole = {"subsequent_indent": indent, "break_long_words": False, "break_on_hyphens": False}
        found += textwrap.wrap(line, WIDTH, **whole) if len(line) > WIDTH else [line]
    return found


def width_for(csv: bool) -> int | None:
    """Return the terminal's width if text is printed to one; None otherwise, or for output that programs read."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() and not csv else None


def frame_text(frame: pd.DataFrame, width: int | None, index: bool = True) -> str:
    """Return rows of a table, no wider than the terminal; long texts are shortened in the middle if still distinct."""
    frame = frame.rename(columns=lambda name: textwrap.shorten(printable(str(name)), CELL, placeholder="..."))
    return frame.apply(_hex).apply(_short).to_string(line_width=width or 160, max_colwidth=None, index=index)


def _short(column: pd.Series) -> pd.Series:
    if column.dtype not in ("object", "str", "category"):
        return column
    whole = column.astype("str")
    short = whole.map(lambda text: f"{text[:11]}...{text[-14:]}" if len(text) > CELL else text, na_action="ignore")
    return short if column.dtype == "object" or short.nunique() == whole.nunique() else whole


def as_csv(frame: pd.DataFrame) -> str:
    return frame.apply(_hex).to_csv(index=False).removesuffix("\n")


def _hex(column: pd.Series) -> pd.Series:
    """Return a column with its bytes (hashes, or files in a struct) as hexadecimal digits."""
    return column.map(_digits) if column.dtype == "object" else column


def _digits(value: object) -> object:
    if isinstance(value, dict):
        return {key: _digits(inner) for key, inner in value.items()}
    return value.hex() if isinstance(value, bytes) else value


def published_numbers(paper: str | None, table: str = "") -> str:
    """Return a paper's rows by setting, as printed there; without a paper, a line for each with its rows and tables."""
    if paper is None:
        if table:
            raise GranularityError(f"--table {table}: name a paper first: {', '.join(published.papers())}")
        papers = {paper: published.read(paper) for paper in published.papers()}
        names = {paper: " ".join(published.tables(rows)) or "no tables" for paper, rows in papers.items()}
        return "\n".join(
            table_of([[paper, f"{len(papers[paper]):3d} rows", tables] for paper, tables in names.items()])
        )
    rows = published.read(paper, table)
    columns = [name for name in SHOWN if any(row[name] for row in rows)]
    head, *lines = table_of([columns, *([row[name] for name in columns] for row in rows)])
    by = itertools.groupby(zip(rows, lines, strict=True), key=lambda pair: pair[0]["setting"])
    return "\n".join([head, *(line for setting, group in by for line in ("", setting, *(line for _, line in group)))])
