"""Numbers published in papers: one row each, in `claims/numbers/PAPER.csv` (docs/studies.md)."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import read_text

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent / "numbers"
COLUMNS = ("paper", "table", "figure", "setting", "arm", "x", "metric", "mean", "std", "n", "note")
NUMBERS = ("x", "mean", "std", "n")
KEY = ("table", "setting", "arm", "x", "metric")  # identifies a row
COUNTS = "label_counts"  # a table of another kind, which label spaces are checked against


def papers() -> list[str]:
    """Return the names of the papers with published numbers here."""
    return sorted(path.stem for path in FOLDER.glob("*.csv") if path.stem != COUNTS)


def file_of(paper: str) -> Path:
    """Return the file with the published rows of a paper, such as "granularity"."""
    file = FOLDER / f"{paper}.csv"
    if paper not in papers():
        raise GranularityError(f"{file}: there are no published rows with this name; there are {', '.join(papers())}")
    return file


def read(paper: str, table: str = "") -> list[dict[str, str]]:
    """Read a paper's rows (of one table) as text, so that numbers keep the digits that were printed.

    Raises GranularityError: there is no such file or table; or rows are malformed (one line for each).
    """
    file = file_of(paper)
    header, *records = [*csv.reader(read_text(file).splitlines())] or [[]]
    if header != list(COLUMNS):
        raise GranularityError(f"{file}: the columns are {','.join(header)}, but must be {','.join(COLUMNS)}")
    rows = [dict(zip(COLUMNS, cells, strict=False)) for cells in records]
    first_lines: dict[tuple, int] = {}
    wrong = []
    for line, (row, cells) in enumerate(zip(rows, records, strict=True), start=2):
        key = tuple(map(row.get, KEY))
        if len(cells) != len(COLUMNS):
            wrong.append(f"{line}: has {len(cells)} cells, but must have {len(COLUMNS)}")
        elif odd := [name for name in NUMBERS if not _number(row[name])]:
            wrong.append(f"{line}, column {odd[0]}: '{row[odd[0]]}' is not a number")
        elif (at := first_lines.setdefault(key, line)) != line:
            wrong.append(f"{line}: equals row {at} in {', '.join(KEY)}")
    if wrong:
        raise GranularityError(*(f"{file}: row {mistake}" for mistake in wrong))
    if not table:
        return rows
    if table not in tables(rows):
        raise GranularityError(f"{file}: has no table {table}; it has {', '.join(tables(rows)) or 'none'}")
    return [row for row in rows if row["table"] == table]


def tables(rows: list[dict[str, str]]) -> list[str]:
    """Return the tables of some rows, in order; numbers that appear only in the text or in a figure have none."""
    return list(dict.fromkeys(row["table"] for row in rows if row["table"]))


def rows(paper: str, table: str = "") -> pd.DataFrame:
    """Read as :func:`read` does, with x, mean, std and n as float64 (NaN if empty) and other columns as text."""
    import pandas as pd

    found = pd.DataFrame(read(paper, table), columns=list(COLUMNS))
    return found.assign(**{name: [float(cell or "nan") for cell in found[name]] for name in NUMBERS})


def with_baselines(table: str) -> pd.DataFrame:
    """Return the :func:`rows` of a table of `granularity`, and its networks' baselines that appear only in the text."""
    import pandas as pd

    own, every = rows("granularity", table), rows("granularity")
    text = every[(every["table"] == "") & every["arm"].isin(["baseline", "one pass"])]
    same = [any(one.startswith(name.rpartition("; ")[0]) for one in own["setting"]) for name in text["setting"]]
    return pd.concat([own, text[same]], ignore_index=True)


def number(paper: str, **where: str) -> float:
    """Return the mean of the one row that matches `where`; GranularityError: no such row, several, or no mean."""
    found = [row for row in read(paper) if all(row[name] == value for name, value in where.items())]
    if len(found) != 1 or not found[0]["mean"]:
        words = ", ".join(f"{name} '{value}'" for name, value in where.items())
        what = "has no mean" if len(found) == 1 else f"must be 1 row, but there are {len(found)}"
        raise GranularityError(f"{file_of(paper)}: {words}: {what}")
    return float(found[0]["mean"])


def _number(cell: str) -> bool:
    try:
        return cell == "" or math.isfinite(float(cell))
    except ValueError:
        return False
