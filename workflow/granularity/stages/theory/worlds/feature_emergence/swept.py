"""What the network and its baselines rest on: initial scale, width, rates and time, one at a time, at the small size.

Bands were set before any of these arms was run. Each rate of a baseline is a phase of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from granularity.claims.claim import Claim
from granularity.stages.theory.runs import at

NAME = "small, {} = {:g}"
METHODS = ("network", "rf", "ntk", "sgd")
SWEPT = {"baseline_rms": (0.05, 1.0), "m": (25,), "steps": (150,)}  # as drawn, r.m.s. is 0.2
MORE = {"m": (400,), "steps": (2400,)}  # of the size `paper` alone, as is `WIDE`
RATES = {"rate": (0.03, 1.0, 3.0)}  # of the network; the baselines' own follow, wider than in the other arms
WIDE = "small, wide rates"
WIDER = {"rf_rates": (1e-3, 10.0), "ntk_rates": (1e-5, 1e-2), "sgd_rates": (1e-5, 1e-2, 0.1)}
BASELINES = ("random features", "tangent kernel", "plain SGD")
BEFORE = "set before these arms were run"


def arms(small: dict[str, Any], seeds: int, more: bool) -> list[dict[str, Any]]:
    """The swept arms, of the world's small size; `more` adds the costly ones."""
    sweeps = [(METHODS, SWEPT), (("network",), RATES)] + [(METHODS, MORE)] * more
    found = [
        {"name": name, **small, "methods": methods, "seeds": seeds, key: value}
        for methods, sweep in sweeps
        for key, value, name in _each(sweep)
    ]
    return found + [{"name": WIDE, **small, "methods": METHODS[1:], "seeds": seeds, **WIDER}] * more


def _each(*sweeps: dict[str, tuple[float, ...]]) -> list[tuple[str, float, str]]:
    """Key, value and name of each swept arm."""
    return [(k, v, NAME.format(k, v)) for sweep in sweeps for k, values in sweep.items() for v in values]


def judge(table: pd.DataFrame) -> Iterable[Claim]:
    """A19, the network, and A20, what has fixed features or no two steps, at each size; accuracies in per cent."""
    names = [name for _, _, name in _each(SWEPT, MORE)]
    claim, source = "The network learns parity at every width, rate and time", "Theorem 1, varied"
    for key, _, arm in _each(SWEPT, MORE, RATES):
        if key != "baseline_rms":  # which does not change the network
            values = at(table, arm, "test_acc", phase="network")
            yield Claim("A19", claim, source, f"{arm}: network, test accuracy", values, 99, arms=(arm,), reason=BEFORE)
    claim = "Fixed features, and SGD without the two steps, stay behind at every scale, width, rate and time"
    for arm in (*names, WIDE):
        for method in BASELINES:
            rows = table[(table["setting"] == arm) & table["phase"].str.startswith(method + " ")]
            rates = rows["phase"].unique()
            ends = [np.nan_to_num(at(table, arm, "test_acc", phase=phase)) for phase in rates]  # diverged: nothing
            best = np.max(ends, axis=0) if ends else []
            quantity = f"{arm}: {method}, test accuracy at its best rate"
            yield Claim("A20", claim, "Theorem 2, varied", quantity, best, high=90, arms=(arm,), reason=BEFORE)
            for phase, values in zip(rates, ends, strict=True):
                yield Claim("A20", claim, "Theorem 2, varied", f"{arm}: {phase}, test accuracy", values, arms=(arm,))
