"""What the baselines rest on: initial scale, width, step size and time, one at a time.

Bands were set before any of these arms was run. An arm whose baseline is not learnt in distribution is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from granularity.claims.claim import ABOVE_ZERO, Claim, unmet
from granularity.stages.theory.runs import at

ONE, LABELLED = "ReLU, {} = {:g}", {1: "2 labels, {} = {:g}", 4: "8 labels, {} = {:g}"}
SWEPT = {"init_scale": (0.1, 0.3, 3.0), "m": (64, 1024), "lr": (0.05, 2.0), "steps": (200, 5000)}
SWEPT_LABELS = {"init_scale": (0.1, 3.0), "m": (64, 512), "lr": (0.1, 1.0)}
LEARNT = 0.1  # ID risk of the paper's network at most
BEFORE = "set before these arms were run"


def arms(labels: dict[str, Any], seeds: int) -> list[dict[str, Any]]:
    """The swept arms; `labels` is what the world's arms of the crossing have in common."""
    found = [
        {"name": ONE.format(key, value), "seeds": seeds, key: value}
        for key, values in SWEPT.items()
        for value in values
    ]
    return found + [
        {"name": name.format(key, value), **labels, "g": g, "seeds": seeds, key: value}
        for key, values in SWEPT_LABELS.items()
        for value in values
        for g, name in LABELLED.items()
    ]


def judge(table: pd.DataFrame) -> Iterable[Claim]:
    """C16, the paper's network, and X5, the crossing, at each size."""
    claim = "Contamination rests on none of initial scale, width, step size and time, where the task is learnt"
    for arm in (ONE.format(key, value) for key, values in SWEPT.items() for value in values):
        risk = at(table, arm, "id_risk")
        why = unmet((not (risk > LEARNT).any(), f"not learnt: ID risk {risk.max(initial=0):.2f}, above {LEARNT:g}"))
        head = ("C16", claim, "Theorems 4.2, 4.3, varied")
        own = {"arms": (arm,), "untested": why, "reason": BEFORE}
        yield Claim(*head, f"{arm}: OOD risk", at(table, arm, "ood_risk"), 0.5, **own)
        yield Claim(*head, f"{arm}: bg_sum", at(table, arm, "bg_sum"), ABOVE_ZERO, **own)
        yield Claim(*head, f"{arm}: ID risk", risk, arms=(arm,))
    claim = "Nor does what fine labels do about it under the hinge"
    for key, values in SWEPT_LABELS.items():
        for value in values:
            pair = [LABELLED[g].format(key, value) for g in (4, 1)]
            fine, coarse = (at(table, arm, "ood_margin") / at(table, arm, "id_margin") for arm in pair)
            gain = fine - coarse if len(fine) == len(coarse) else []
            quantity = f"{key} = {value:g}: margin kept at z_bg = U[-1, 0], 8 labels - 2"
            yield Claim("X5", claim, "crossing, varied", quantity, gain, 0.4, arms=pair, reason=BEFORE)
            for arm, kept in zip(pair, (fine, coarse), strict=True):
                yield Claim("X5", claim, "crossing, varied", f"{arm}: margin kept", kept, arms=(arm,))
                for column in ("id_risk", "ood_risk", "bg_sum"):
                    quantity = f"{arm}: {column}"
                    yield Claim("X5", claim, "crossing, varied", quantity, at(table, arm, column), arms=(arm,))
