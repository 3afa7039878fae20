"""A claim against its numbers: measured values, the band they must lie in, and the verdict that follows.

A verdict is computed, never written: `holds` when the judged values lie in the band, `fails` when one does
not or is not a number (a diverged run), `not run at this size` when there are none. A quantity without a
band is `reported`: shown beside the others, judged by nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

HOLDS, FAILS, NOT_RUN, REPORTED = "holds", "fails", "not run at this size", "reported"
ABOVE_ZERO = math.ulp(0.0)  # the smallest low end that excludes zero itself


@dataclass(frozen=True)
class Check:
    """One quantity of one claim. A claim with several quantities is several checks with one id.

    Attributes:
        id: the claim's, such as "S1".
        claim: in words a reader of the paper knows.
        source: section or theorem.
        quantity: what is measured, where, with its unit if it has one.
        values: one a seed, or a single one for quantities over all seeds; empty: not run.
        low, high: the band, both ends allowed.
        judged: whether every value must lie in the band, or their mean.
        seeds: seeds behind the values; their number unless given.
    """

    id: str
    claim: str
    source: str
    quantity: str
    values: Sequence[float]
    low: float = -math.inf
    high: float = math.inf
    judged: Literal["every seed", "mean"] = "every seed"
    seeds: int | None = None

    @property
    def verdict(self) -> str:
        values = np.asarray(self.values, dtype=float)
        if values.size == 0:
            return NOT_RUN
        if math.isinf(self.low) and math.isinf(self.high):
            return REPORTED
        judged = values if self.judged == "every seed" else np.array([values.mean()])
        return HOLDS if bool(np.all((judged >= self.low) & (judged <= self.high))) else FAILS

    @property
    def band(self) -> str:
        low = "> 0" if self.low == ABOVE_ZERO else f">= {self.low:.4g}"
        if math.isinf(self.high):
            return low if math.isfinite(self.low) else "reported, no band"
        if math.isinf(self.low):
            return f"<= {self.high:.4g}"
        return f"= {self.low:.4g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"

    def row(self) -> dict[str, object]:
        values = np.asarray(self.values, dtype=float)
        none = values.size == 0
        inside = (values >= self.low) & (values <= self.high)
        return {
            "id": self.id,
            "claim": self.claim,
            "source": self.source,
            "quantity": self.quantity,
            "measured": math.nan if none else values.mean(),
            "sd": values.std(ddof=1) if values.size > 1 else math.nan,
            "minimum": math.nan if none else values.min(),
            "maximum": math.nan if none else values.max(),
            "band": self.band,
            "judged": self.judged,
            "verdict": self.verdict,
            "seeds": values.size if self.seeds is None else self.seeds,
            "in_band": f"{inside.sum()} of {values.size}" if self.verdict in (HOLDS, FAILS) else "",
        }


def table(checks: Iterable[Check]) -> pd.DataFrame:
    """One row a quantity; the columns are those of :meth:`Check.row`."""
    return pd.DataFrame([check.row() for check in checks])


def verdicts(checks: Iterable[Check]) -> dict[str, str]:
    """One verdict a claim: `fails` if a quantity fails, else `holds` if one holds, else what is left."""
    folded: dict[str, str] = {}
    for check in checks:
        found = {folded.get(check.id, NOT_RUN), check.verdict}
        folded[check.id] = next(v for v in (FAILS, HOLDS, REPORTED, NOT_RUN) if v in found)
    return folded


def at(table: pd.DataFrame, setting: str, column: str, *, phase: str = "train", **where: object) -> np.ndarray:
    """A measure of one arm, one value a seed in the order of seeds: at the end, or where the columns say.

    Args:
        table: of runs.
        setting, phase: the arm.
        column: the measure.
        where: instead of the end, such as ``step=200`` or ``event="T0"`` (events of that row contain the
            word).

    Returns:
        float64, NaN for a run that diverged; empty when the arm or the row is not in the table.
    """
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
