"""Rows of papers: the numbers that were published, one row each, in `config/published/NAME.csv`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parents[3] / "config" / "published"


def file_of(name: str) -> Path:
    """The file of a paper's published rows.

    Args:
        name: such as "granularity_t5"; a row per published number.

    Raises:
        GranularityError: there is no such file.
    """
    file = FOLDER / f"{name}.csv"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.csv")))
        raise GranularityError(f"{file}: there are no published rows of this name; there are {known}")
    return file


def rows(name: str) -> pd.DataFrame:
    """A paper's published rows: the columns paper, table, figure, arm, granularity, metric, mean, std, note, ...

    Raises:
        GranularityError: there is no such file (see :func:`file_of`).
    """
    import pandas as pd

    return pd.read_csv(file_of(name), keep_default_na=False)
