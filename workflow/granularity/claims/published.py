"""Numbers that papers published: a row each, in `config/published/PAPER.csv` (docs/studies.md)."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import read_text

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
    """The file of the published rows of a paper, such as "granularity"."""
    file = FOLDER / f"{paper}.csv"
    if paper not in papers():
        raise GranularityError(f"{file}: there are no published rows of this name; there are {', '.join(papers())}")
    return file


def read(paper: str, table: str = "") -> list[dict[str, str]]:
    """A paper's rows (of one table) as they stand in its file, so that numbers keep the digits they were printed with.

    Raises GranularityError: there is no such file or table; or, a line each, the rows that are malformed.
    """
    file = file_of(paper)
    header, *found = [*csv.reader(read_text(file).splitlines())] or [[]]
    if header != list(COLUMNS):
        raise GranularityError(f"{file}: the columns are {','.join(header)}, must be {','.join(COLUMNS)}")
    rows = [dict(zip(COLUMNS, cells, strict=False)) for cells in found]
    known: dict[tuple, int] = {}
    wrong = []
    for line, (row, cells) in enumerate(zip(rows, found, strict=True), start=2):
        key = tuple(map(row.get, KEY))
        if len(cells) != len(COLUMNS):
            wrong.append(f"{line}: has {len(cells)} cells, must have {len(COLUMNS)}")
        elif odd := [name for name in NUMBERS if not _number(row[name])]:
            wrong.append(f"{line}, column {odd[0]}: '{row[odd[0]]}' is no number")
        elif (at := known.setdefault(key, line)) != line:
            wrong.append(f"{line}: is alike row {at} in {', '.join(KEY)}")
    if wrong:
        raise GranularityError(*(f"{file}: row {mistake}" for mistake in wrong))
    if not table:
        return rows
    if table not in tables(rows):
        raise GranularityError(f"{file}: has no table {table}; it has {', '.join(tables(rows)) or 'none'}")
    return [row for row in rows if row["table"] == table]


def tables(rows: list[dict[str, str]]) -> list[str]:
    """The tables of some rows, in their order; numbers that stand in the text or in a figure alone have none."""
    return list(dict.fromkeys(row["table"] for row in rows if row["table"]))


def rows(paper: str, table: str = "") -> pd.DataFrame:
    """As :func:`read`: x, mean, std and n as float64 (NaN where empty), other columns as text."""
    import pandas as pd

    found = pd.DataFrame(read(paper, table), columns=list(COLUMNS))
    return found.assign(**{name: [float(cell or "nan") for cell in found[name]] for name in NUMBERS})


def with_baselines(table: str) -> pd.DataFrame:
    """The :func:`rows` of a table of `granularity`, and baselines of the same networks that stand in the text alone."""
    import pandas as pd

    own, every = rows("granularity", table), rows("granularity")
    text = every[(every["table"] == "") & every["arm"].isin(["baseline", "one pass"])]
    same = [any(one.startswith(name.rpartition("; ")[0]) for one in own["setting"]) for name in text["setting"]]
    return pd.concat([own, text[same]], ignore_index=True)


def number(paper: str, **where: str) -> float:
    """The mean of the one row whose columns are `where`; GranularityError: none, several, or one without a mean."""
    found = [row for row in read(paper) if all(row[name] == value for name, value in where.items())]
    if len(found) != 1 or not found[0]["mean"]:
        words = ", ".join(f"{name} '{value}'" for name, value in where.items())
        what = "has no mean" if len(found) == 1 else f"must be 1 row, there are {len(found)}"
        raise GranularityError(f"{file_of(paper)}: {words}: {what}")
    return float(found[0]["mean"])


def _number(cell: str) -> bool:
    try:
        return cell == "" or math.isfinite(float(cell))
    except ValueError:
        return False
