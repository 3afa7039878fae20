"""The claims of a study or a world that was never run: as they are judged on tables without a row."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import claim
from granularity.claims.claim import Claim

MOST = 200  # columns that the claims may ask for
TEXTS = ("setting", "phase", "event", "outcome")


def of_study(name: str) -> list[dict[str, str]]:
    """The rows of a study of images, see :func:`_rows`."""
    return _of_study(extensions.find("study", name))


@functools.cache
def _of_study(study: ModuleType) -> list[dict[str, str]]:
    import pandas as pd

    def judge(columns: Iterable[str]) -> list[Claim]:
        table = pd.DataFrame({column: pd.Series(dtype=object) for column in columns})
        return list(study.judge({file: table for file in ("samples", *study.READS)}))

    return _rows(judge, study)


def of_world(name: str) -> list[dict[str, str]]:
    """The rows of a world of the theory, see :func:`_rows`."""
    import pandas as pd

    world = extensions.find("world", name)

    def judge(columns: Iterable[str]) -> list[Claim]:
        kinds = {column: object if column in TEXTS else float for column in (*TEXTS, "seed", "step", *columns)}
        return list(world.judge(pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in kinds.items()})))

    return _rows(judge, world)


def _rows(judge: Any, module: ModuleType) -> list[dict[str, str]]:
    """The rows of `checks.csv` as the claims have them without a run, all cells as text.

    Which columns the claims ask for is known to them alone: one that is missing is added, until none is.

    Raises:
        GranularityError: they cannot be judged without a run.
    """
    columns: list[str] = []
    while len(columns) < MOST:
        try:
            return [_emptied(row) for row in as_text(claim.table(judge(columns)))]
        except KeyError as error:
            asked = re.findall(r"'(?:Column not found: )?([^']+)'", str(error))
            if not set(asked) - set(columns):
                break
            columns += [name for name in asked if name not in columns]
        except (IndexError, ValueError, TypeError, AttributeError):  # a user's own
            break
    raise GranularityError(f"{module.__name__}: its claims cannot be listed before it was run")


def _emptied(row: dict[str, str]) -> dict[str, str]:
    """Without what was counted of nothing, and without the place where nothing lies."""
    where = re.compile(r"^no [^:]*(?:networks|data set)(?:, \w+)?: ")
    measured = dict.fromkeys(("measured", "sd", "minimum", "maximum", "interval_low", "interval_high", "p"), "")
    return row | measured | {"quantity": where.sub("", row["quantity"]), "seeds": "0", "why": claim.NOT_RUN}


def as_text(table: Any) -> list[dict[str, str]]:
    """A table of checks as its CSV file holds it."""
    import pandas as pd

    if table.empty:
        return []
    text = table.to_csv(index=False, float_format="%.6g")
    return pd.read_csv(io.StringIO(text), keep_default_na=False, dtype=str).to_dict("records")
