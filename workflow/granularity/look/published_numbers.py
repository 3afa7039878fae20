"""What `granularity published` prints: the numbers of a paper as a table, or what there is of each paper."""

from __future__ import annotations

from granularity.base.errors import GranularityError
from granularity.claims import published

SHOWN = ("table", "figure", "arm", "x", "metric", "mean", "std", "n", "note")  # under a line for each setting


def overview() -> str:
    """A line per paper: its name, how many rows it has, and its tables."""
    found = {paper: published.read(paper) for paper in published.papers()}
    wide = max(map(len, found))
    return "\n".join(
        f"{paper:{wide}}  {len(rows):3d} rows  {' '.join(published.tables(rows)) or 'no tables'}"
        for paper, rows in found.items()
    )


def describe(paper: str | None, table: str = "") -> str:
    """A paper's rows by setting, as they are printed there; without a paper, what there is.

    Raises:
        GranularityError: there is no such paper or table, or a table of no paper (see also
            :func:`granularity.claims.published.read`).
    """
    if paper is None:
        if table:
            raise GranularityError(f"--table {table}: of which paper? There are {', '.join(published.papers())}")
        return overview()
    rows = published.read(paper, table)
    shown = [name for name in SHOWN if any(row[name] for row in rows)]
    cells = [shown, *([row[name] for name in shown] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    found, setting = [lines[0]], None
    for row, line in zip(rows, lines[1:], strict=True):
        if row["setting"] != setting:
            setting = row["setting"]
            found += ["", setting]
        found.append(line)
    return "\n".join(found)
