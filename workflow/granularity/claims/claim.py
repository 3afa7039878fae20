"""A claim against its numbers: measured values, the band they must lie in, and the verdict that follows.

A verdict is computed, never written: `holds` when the judged values lie in the band, `fails` when one does not or is
not a number (a diverged run), `not tested` when there are none or when a precondition is not met; then the claim says
why. A quantity without a band is `reported`: shown beside the others, judged by nobody. An identity, true by how its
quantity is defined, tests code and not a statement about networks: it is a kind of its own and counted apart. A claim
whose preregistration is another file than at the run has the verdict `changed after the run`, whatever the numbers are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

HOLDS, FAILS, NOT_TESTED, REPORTED = "holds", "fails", "not tested", "reported"
CHANGED = "changed after the run"  # the preregistration
NOT_RUN = "not run at this size"  # why a claim without values was not tested, where it does not say
ABOVE_ZERO = math.ulp(0.0)  # the smallest low end that excludes zero itself
BELOW_ZERO = -ABOVE_ZERO  # the largest high end that does


@dataclass(frozen=True)
class Claim:
    """One quantity of one claim. A claim with several quantities is several of these with one id.

    Attributes:
        id: names the claim, such as "S1".
        claim: the statement, in words that a reader of the paper knows.
        source: section, theorem or table of the paper.
        quantity: what is measured, where, with its unit if it has one.
        values: what was measured, per seed or per arm, or one value over all seeds; empty: not run.
        low, high: the band, both ends allowed. It is set before the run.
        judged: whether every value must lie in the band, or their mean.
        seeds: number of seeds behind the values (None: one per value).
        untested: which precondition is not met, in words (see :func:`unmet`); empty where all are.
        reason: why the band is where it is.
        published: the paper's own values of the quantity.
        kind: `identity` where it cannot fail but by a mistake in the code.
        preregistration: digest of the file of predictions as it was at the run; empty where there was none.
        changed: whether that file is another one now.
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
    untested: str = ""
    reason: str = ""
    published: Sequence[float] = ()
    kind: Literal["claim", "identity"] = "claim"
    preregistration: str = ""
    changed: bool = False

    @property
    def verdict(self) -> str:
        if self.changed:
            return CHANGED
        values = np.asarray(self.values, dtype=float)
        if self.untested or values.size == 0:
            return NOT_TESTED
        if math.isinf(self.low) and math.isinf(self.high):
            return REPORTED
        judged = values if self.judged == "every seed" else np.array([values.mean()])
        return HOLDS if bool(np.all((judged >= self.low) & (judged <= self.high))) else FAILS

    @property
    def why(self) -> str:
        """The reason why it was not tested; empty where it was."""
        return self.untested or ("" if len(self.values) else NOT_RUN)

    @property
    def band(self) -> str:
        low = "> 0" if self.low == ABOVE_ZERO else f">= {self.low:.4g}"
        high = "< 0" if self.high == BELOW_ZERO else f"<= {self.high:.4g}"
        if math.isinf(self.high):
            return low if math.isfinite(self.low) else "reported, no band"
        if math.isinf(self.low):
            return high
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
            "why": self.why,
            "reason": self.reason,
            "published": _range(self.published),
            "kind": self.kind,
            "preregistration": self.preregistration,
        }


def table(claims: Iterable[Claim]) -> pd.DataFrame:
    """One row per quantity; the columns are those of :meth:`Claim.row`."""
    import pandas as pd

    return pd.DataFrame([claim.row() for claim in claims])


def verdicts(claims: Iterable[Claim], kind: str = "claim") -> dict[str, str]:
    """One verdict per claim of a kind: `fails` if a quantity fails, else `holds` if one holds, else what is left."""
    folded: dict[str, str] = {}
    for claim in claims:
        if claim.kind == kind:
            found = {folded.get(claim.id, NOT_TESTED), claim.verdict}
            folded[claim.id] = next(v for v in (CHANGED, FAILS, HOLDS, REPORTED, NOT_TESTED) if v in found)
    return folded


def unmet(*preconditions: tuple[bool, str]) -> str:
    """The preconditions that are not met, in words; empty where all are.

    Args:
        preconditions: whether one is met, and what is to be said where it is not, such as "1 backbone, needs 2".
    """
    return "; ".join(words for met, words in preconditions if not met)


def _range(values: Sequence[float]) -> str:
    ends = [f"{end:.4g}" for end in (min(values), max(values))] if len(values) else [""]
    return " to ".join(dict.fromkeys(ends))
