"""The run table of a world: its columns, the order of its rows, and one measure of one arm."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError

RUN_COLUMNS = ("setting", "seed", "phase", "step", "event", "outcome")


def ordered(frame: pd.DataFrame, settings: Sequence[Any]) -> pd.DataFrame:
    """Return the run table from the rows of groups of runs, ordered by setting, then by seed.

    A row per setting, seed, phase and recorded step: `RUN_COLUMNS`, the settings' parameters, ``loss`` and the world's
    measures (float64, NaN if missing). Raises GranularityError: a measure has the name of a parameter.
    """
    names = [item.name for item in settings]
    parameters = [{"setting": item.name, **_scalars(item)} for item in settings]
    clash = (set(frame.columns) & set(parameters[0])) - {"setting"}
    if clash:
        raise GranularityError(f"theory: measures must not have the names of parameters: {sorted(clash)}")
    measures = [name for name in frame.columns if name not in RUN_COLUMNS]
    frame["_order"] = frame["setting"].map({name: i for i, name in enumerate(names)})
    frame = frame.sort_values(["_order", "seed"], kind="stable").drop(columns="_order")
    frame = frame.merge(pd.DataFrame(parameters), on="setting", how="left", validate="many_to_one")
    frame[measures] = frame[measures].astype("float64")
    keys = [name for name in parameters[0] if name != "setting"]
    return frame[[*RUN_COLUMNS, *keys, *measures]].reset_index(drop=True)


def at(table: pd.DataFrame, setting: str, column: str, *, phase: str = "train", **where: object) -> np.ndarray:
    """Return a measure of one arm, one value per seed in order, at the end or where `where` says (``step=200``,
    ``event="T0"``): float64, NaN for a diverged run; empty if the arm or the row is not in the table."""
    rows = table[(table["setting"] == setting) & (table["phase"] == phase)]
    if rows.empty or column not in rows:
        return np.empty(0)
    lost = rows[rows["event"] == "diverged"]
    where = where or {"event": "end"}
    for key, value in where.items():
        if key == "event":
            rows = rows[rows["event"].str.split().map(lambda words, value=value: value in words).astype(bool)]
        else:
            rows = rows[rows[key] == value]
    values = {**dict.fromkeys(lost["seed"], math.nan), **dict(zip(rows["seed"], rows[column], strict=True))}
    return np.array([values[seed] for seed in sorted(values)], dtype=float)


def _scalars(item: Any) -> dict[str, Any]:
    values = item.model_dump(exclude={"name", "seeds"})
    return {key: value for key, value in values.items() if value is None or isinstance(value, (int, float, str))}
