"""Numbers that papers published: a row each, in `config/published/PAPER.csv` (docs/published.md)."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parents[3] / "config" / "published"
COLUMNS = ("paper", "table", "figure", "setting", "arm", "x", "metric", "mean", "std", "n", "note")
NUMBERS = ("x", "mean", "std", "n")
KEY = ("table", "setting", "arm", "x", "metric")  # no two rows are alike in all of them
COUNTS = "label_counts"  # a table of another kind: what label spaces are checked against


def papers() -> list[str]:
    """Names of the papers whose numbers are here."""
    return sorted(path.stem for path in FOLDER.glob("*.csv") if path.stem != COUNTS)


def file_of(paper: str) -> Path:
    """The file of a paper's published rows.

    Args:
        paper: such as "granularity".

    Raises:
        GranularityError: there is no such file.
    """
    file = FOLDER / f"{paper}.csv"
    if paper not in papers():
        raise GranularityError(f"{file}: there are no published rows of this name; there are {', '.join(papers())}")
    return file


def read(paper: str, table: str = "") -> list[dict[str, str]]:
    """A paper's rows as they stand in its file, so that numbers keep the digits they were printed with.

    Args:
        paper: as in :func:`file_of`.
        table: such as "T5": its rows only.

    Raises:
        GranularityError: there is no such file or table; or, a line each, columns that are not :data:`COLUMNS`, cells
            that are no number, rows that are alike in all of :data:`KEY`, cells that must not be empty.
    """
    file = file_of(paper)
    try:
        with open(file, newline="", encoding="utf-8") as stream:
            lines = csv.reader(stream)
            header = next(lines, [])
            found = [(lines.line_num, cells) for cells in lines]
    except (UnicodeDecodeError, csv.Error) as error:
        raise GranularityError(f"{file}: is no CSV file in UTF-8: {error}") from None
    if header != list(COLUMNS):
        raise GranularityError(f"{file}: the columns are {','.join(header)}, must be {','.join(COLUMNS)}")
    wrong = [mistake for line, cells in found for mistake in _mistakes(paper, line, cells)] + _twice(found)
    if wrong:
        raise GranularityError(*(f"{file}: {mistake}" for mistake in wrong))
    rows = [dict(zip(COLUMNS, cells, strict=True)) for _, cells in found]
    if not table:
        return rows
    if table not in tables(rows):
        raise GranularityError(f"{file}: has no table {table}; it has {', '.join(tables(rows)) or 'none'}")
    return [row for row in rows if row["table"] == table]


def tables(rows: list[dict[str, str]]) -> list[str]:
    """The tables of some rows, in their order; numbers that stand in the text or in a figure alone have none."""
    return list(dict.fromkeys(row["table"] for row in rows if row["table"]))


def rows(paper: str, table: str = "") -> pd.DataFrame:
    """A paper's rows, or those of one table: x, mean, std and n as float64 (NaN where empty), other columns as text.

    Raises:
        GranularityError: as :func:`read`.
    """
    import pandas as pd

    found = pd.DataFrame(read(paper, table), columns=list(COLUMNS))
    return found.assign(**{name: [float(cell or "nan") for cell in found[name]] for name in NUMBERS})


def with_baselines(table: str) -> pd.DataFrame:
    """The :func:`rows` of a table of `granularity`, and baselines of the same networks that stand in the text alone.

    Raises:
        GranularityError: as :func:`read`.
    """
    import pandas as pd

    own, every = rows("granularity", table), rows("granularity")
    text = every[(every["table"] == "") & every["arm"].isin(["baseline", "one pass"])]
    same = [any(one.startswith(name.rpartition("; ")[0]) for one in own["setting"]) for name in text["setting"]]
    return pd.concat([own, text[same]], ignore_index=True)


def number(paper: str, **where: str) -> float:
    """The mean of one row, such as ``number("granularity", table="T3", setting="ImageNet-1k alone; ...")``.

    Args:
        where: columns and what they hold, as text: as many as it takes to tell the row from all others.

    Raises:
        GranularityError: no row, several rows, or a row without a mean (see also :func:`read`).
    """
    found = [row for row in read(paper) if all(row[name] == value for name, value in where.items())]
    if len(found) != 1 or not found[0]["mean"]:
        words = ", ".join(f"{name} '{value}'" for name, value in where.items())
        what = "has no mean" if len(found) == 1 else f"must be 1 row, there are {len(found)}"
        raise GranularityError(f"{file_of(paper)}: {words}: {what}")
    return float(found[0]["mean"])


def _mistakes(paper: str, line: int, cells: list[str]) -> list[str]:
    if len(cells) != len(COLUMNS):
        return [f"row {line}: has {len(cells)} cells, must have {len(COLUMNS)}"]
    row = dict(zip(COLUMNS, cells, strict=True))
    wrong = [f"row {line}, column {name}: '{row[name]}' is no number" for name in NUMBERS if not _number(row[name])]
    wrong += [f"row {line}, column {name}: is empty" for name in ("setting", "arm", "metric") if not row[name]]
    if row["paper"] != paper:
        wrong.append(f"row {line}, column paper: '{row['paper']}' is not the file's name")
    if not row["mean"] and not row["note"]:
        wrong.append(f"row {line}, column note: is empty, where there is no mean either")
    return wrong


def _number(cell: str) -> bool:
    try:
        return cell == "" or math.isfinite(float(cell))
    except ValueError:
        return False


def _twice(found: list[tuple[int, list[str]]]) -> list[str]:
    places = [COLUMNS.index(name) for name in KEY]
    first: dict[tuple[str, ...], int] = {}
    wrong = []
    for line, cells in found:
        if len(cells) == len(COLUMNS):
            at = first.setdefault(tuple(cells[place] for place in places), line)
            wrong += [f"row {line}: is alike row {at} in {', '.join(KEY)}"] if at != line else []
    return wrong
