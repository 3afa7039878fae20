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
SWEPT = {"init_scale": (0.1, 0.3, 3.0), "m": (64,), "lr": (0.05, 2.0), "steps": (200,)}
SWEPT_LABELS = {"init_scale": (0.1, 3.0), "m": (64,), "lr": (0.1,)}
MORE, MORE_LABELS = {"m": (1024,), "steps": (5000,)}, {"m": (512,), "lr": (1.0,)}  # those of the size `paper` alone
LEARNT = 0.1  # ID risk of the paper's network at most
BEFORE = "set before these arms were run"


def arms(labels: dict[str, Any], seeds: int, more: bool) -> list[dict[str, Any]]:
    """The swept arms; `labels` is what the world's arms of the crossing have in common, `more` adds the costly ones."""
    sweeps = (SWEPT, MORE) if more else (SWEPT,)
    found = [{"name": name, "seeds": seeds, key: value} for key, value, name in _each(ONE, *sweeps)]
    for g, words in LABELLED.items():
        for key, value, name in _each(words, *((SWEPT_LABELS, MORE_LABELS) if more else (SWEPT_LABELS,))):
            found.append({"name": name, **labels, "g": g, "seeds": seeds, key: value})
    return found


def _each(words: str, *sweeps: dict[str, tuple[float, ...]]) -> list[tuple[str, float, str]]:
    """Key, value and name of each swept arm."""
    return [(k, v, words.format(k, v)) for sweep in sweeps for k, values in sweep.items() for v in values]


def judge(table: pd.DataFrame) -> Iterable[Claim]:
    """C16, the paper's network, and X5, the crossing, at each size."""
    claim = "Contamination rests on none of initial scale, width, step size and time, where the task is learnt"
    for _, _, arm in _each(ONE, SWEPT, MORE):
        risk = at(table, arm, "id_risk")
        why = unmet((not (risk > LEARNT).any(), f"not learnt: ID risk {risk.max(initial=0):.2f}, above {LEARNT:g}"))
        head = ("C16", claim, "Theorems 4.2, 4.3, varied")
        own = {"arms": (arm,), "untested": why, "reason": BEFORE}
        yield Claim(*head, f"{arm}: OOD risk", at(table, arm, "ood_risk"), 0.5, **own)
        yield Claim(*head, f"{arm}: bg_sum", at(table, arm, "bg_sum"), ABOVE_ZERO, **own)
        yield Claim(*head, f"{arm}: ID risk", risk, arms=(arm,))
    claim = "Nor does what fine labels do about it under the hinge"
    for key, value, _ in _each(LABELLED[1], SWEPT_LABELS, MORE_LABELS):
        pair = [LABELLED[g].format(key, value) for g in (4, 1)]
        fine, coarse = (at(table, arm, "ood_margin") / at(table, arm, "id_margin") for arm in pair)
        gain = fine - coarse if len(fine) == len(coarse) else []
        quantity = f"{key} = {value:g}: margin kept at z_bg = U[-1, 0], 8 labels - 2"
        yield Claim("X5", claim, "crossing, varied", quantity, gain, 0.4, arms=pair, reason=BEFORE)
        for arm, kept in zip(pair, (fine, coarse), strict=True):
            yield Claim("X5", claim, "crossing, varied", f"{arm}: margin kept", kept, arms=(arm,))
            for column in ("id_risk", "ood_risk", "bg_sum"):
                values = at(table, arm, column)
                yield Claim("X5", claim, "crossing, varied", f"{arm}: {column}", values, arms=(arm,))
