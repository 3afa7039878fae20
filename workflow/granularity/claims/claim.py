"""A claim: measured values, the band that they must lie in, and the verdict (docs/theory.md).

NaN, the value of a diverged run, lies in no band.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from granularity.claims.statistics import Difference

HOLDS, FAILS, NOT_TESTED, REPORTED = "holds", "fails", "not tested", "reported"
NOT_SIGNIFICANT = "not significant"
NOT_RUN = "not run at this size"  # default reason for a claim without values
NO_INTERVAL = "no interval: fewer than two seeds, or no spread"
# A claim with several verdicts gets the first of these.
ORDER = (FAILS, NOT_SIGNIFICANT, HOLDS, REPORTED, NOT_TESTED)
ABOVE_ZERO = math.ulp(0.0)  # the smallest low end that excludes zero itself
BELOW_ZERO = -ABOVE_ZERO  # the largest high end that does


@dataclass(frozen=True)
class Claim:
    """One quantity of one claim; a claim with several quantities has one object for each, all with the same id."""

    id: str  # names the claim, such as "S1"
    claim: str  # the statement, in words that a reader of the paper knows
    source: str  # section, theorem or table of the paper
    quantity: str  # what is measured, where, with its unit if it has one
    values: Sequence[float]  # what was measured, per seed or per arm, or one value over all seeds; empty: not run
    low: float = -math.inf  # the band, both ends allowed
    high: float = math.inf
    # What must lie in the band: every value, the mean, or Student's interval of the mean (for values that are paired
    # differences of two arms; see `together`).
    judged: Literal["every seed", "mean", "interval"] = "every seed"
    seeds: int | None = None  # number of seeds behind the values (None: one per value)
    untested: str = ""  # preconditions that are not met, in words (see `unmet`); empty: all are met
    reason: str = ""  # why the band is where it is
    published: Sequence[float] = ()  # the paper's own values of the quantity
    kind: Literal["claim", "identity"] = "claim"  # an identity can fail only through an error in the code
    arms: Sequence[str] = ()  # names of the settings that it was measured on
    conditions: Mapping[str, bool] = field(default_factory=dict)  # conditions of the theorem, in words: are they met?
    comparisons: int = 1  # number of intervals that jointly hold at 95 %, this one included
    p: float = math.nan  # p-value of the mean against 0 for `interval` (NaN: none); Holm-adjusted if there are several
    estimate: Difference | None = None  # mean and standard error for `interval`, if not computed from `values`
    recount: Callable[[int], int] | None = None  # returns the value, a count, for a number of comparisons

    @property
    def verdict(self) -> str:
        if self.why:
            return NOT_TESTED
        if math.isinf(self.low) and math.isinf(self.high):
            return REPORTED
        values = np.asarray(self.values, dtype=float)
        judged = np.asarray({"every seed": values, "mean": [values.mean()], "interval": self.interval}[self.judged])
        if self.judged == "interval" and judged[0] <= self.high and judged[1] >= self.low:
            return HOLDS if judged[0] >= self.low and judged[1] <= self.high else NOT_SIGNIFICANT
        return HOLDS if bool(np.all((judged >= self.low) & (judged <= self.high))) else FAILS

    @property
    def why(self) -> str:
        """Why the claim was not tested; empty if it was."""
        if self.untested or not len(self.values):
            return self.untested or NOT_RUN
        finite = np.isfinite(np.asarray(self.values, dtype=float)).all()  # a diverged run fails
        return NO_INTERVAL if self.judged == "interval" and finite and math.isnan(self.interval[0]) else ""

    @property
    def interval(self) -> tuple[float, float]:
        """Bonferroni-corrected interval of the mean paired difference; NaN if unknown or if judged otherwise."""
        if self.judged != "interval":
            return math.nan, math.nan
        from granularity.claims import statistics

        return statistics.interval(*(self.estimate or statistics.mean_of(self.values)), self.comparisons)

    @property
    def band(self) -> str:
        low = "> 0" if self.low == ABOVE_ZERO else f">= {self.low:.4g}"
        high = "< 0" if self.high == BELOW_ZERO else f"<= {self.high:.4g}"
        if math.isinf(self.high):
            return low if math.isfinite(self.low) else "reported, no band"
        if math.isinf(self.low):
            return high
        return f"= {self.low:.4g}" if self.low == self.high else f"{self.low:.4g} to {self.high:.4g}"

    def row(self, command: str = "") -> dict[str, object]:
        """Return the row of `checks.csv`; `command` is the command that runs only the arms of this claim."""
        values = np.asarray(self.values, dtype=float)
        mean, minimum, maximum = (values.mean(), values.min(), values.max()) if values.size else (math.nan,) * 3
        inside = (values >= self.low) & (values <= self.high)
        return {
            "id": self.id,
            "claim": self.claim,
            "source": self.source,
            "quantity": self.quantity,
            "measured": mean,
            "sd": values.std(ddof=1) if values.size > 1 else math.nan,
            "minimum": minimum,
            "maximum": maximum,
            "band": self.band,
            "judged": self.judged,
            "verdict": self.verdict,
            "seeds": values.size if self.seeds is None else self.seeds,
            "in_band": f"{inside.sum()} of {values.size}" if self.verdict in (HOLDS, FAILS, NOT_SIGNIFICANT) else "",
            "why": self.why,
            "reason": self.reason,
            "published": _range(self.published),
            "kind": self.kind,
            "interval_low": self.interval[0],
            "interval_high": self.interval[1],
            "comparisons": self.comparisons if self.judged == "interval" else "",
            "p": self.p,
            "arms": "; ".join(self.arms),
            "conditions": "; ".join(f"{name}: {'met' if met else 'NOT met'}" for name, met in self.conditions.items()),
            "command": command,
        }


def table(claims: Iterable[Claim], command: Callable[[Sequence[str]], str] = lambda arms: "") -> pd.DataFrame:
    """Return one row per quantity, as :meth:`Claim.row` gives it. `command` maps arms to the command that runs them."""
    import pandas as pd

    return pd.DataFrame([claim.row(command(claim.arms)) for claim in claims])


def together(claims: Iterable[Claim]) -> list[Claim]:
    """Correct the comparisons of one question jointly: Bonferroni for their intervals, Holm for their p-values."""
    from granularity.claims import statistics

    found = list(claims)
    p = [statistics.p_value(*statistics.mean_of(one.values)) for one in found]
    count = max(1, sum(map(math.isfinite, p)))
    adjusted = statistics.holm(p)
    return [replace(one, comparisons=count, p=value) for one, value in zip(found, adjusted, strict=True)]


def verdicts(claims: Iterable[Claim], kind: str = "claim") -> dict[str, str]:
    """Return one verdict per claim of this kind: the first in `ORDER` among the verdicts on its quantities."""
    folded: dict[str, str] = {}
    for claim in claims:
        if claim.kind == kind:
            found = {folded.get(claim.id, NOT_TESTED), claim.verdict}
            folded[claim.id] = next(one for one in ORDER if one in found)
    return folded


def unmet(*preconditions: tuple[bool, str]) -> str:
    """Return the preconditions that are not met, in words such as "1 backbone, needs 2"; empty if all are met."""
    return "; ".join(words for met, words in preconditions if not met)


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{end:.4g}" for end in (min(values), max(values)))) if len(values) else ""
