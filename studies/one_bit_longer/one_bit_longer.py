"""Study: is a random bit slow to teach parity of 11, or does it not? The world `one_bit` with three times the steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import yaml

from granularity.claims.claim import Claim
from granularity.stages.theory.worlds import one_bit
from granularity.stages.theory.worlds.one_bit import figures, simulate  # noqa: F401  (part of a world)

EXTENDS, NAME = "world", "one_bit_longer"
SAID = yaml.safe_load((Path(__file__).parent / "predictions.yaml").read_text(encoding="utf-8"))


class Settings(one_bit.Settings):
    """As in `one_bit`."""

    WORLD: ClassVar[str] = NAME


SIZES = {
    "quick": [
        Settings(name=f"{one_bit.BITS[bit]}, k = {k}", bit=bit, k=k, **SAID["setting"])
        for bit in ("majority", "random")
        for k in SAID["k"]
    ]
}


def measured(table: pd.DataFrame) -> dict[str, Sequence[float]]:
    """Return what each prediction is about."""
    random, majority = (one_bit.steps(table, bit) for bit in ("random", "majority"))
    growth = one_bit.growth(table, "end")["difference"]
    most = max(SAID["k"])
    return {
        "learnt": [float(np.mean(random.loc[most] < SAID["setting"]["steps"]))],
        "time": [float(random.loc[most].mean() / majority.loc[most].mean())],
        "growth": [growth[0]],
        "growth, lower end": [growth[1]],
    }


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the predictions."""
    claims = []
    for name, values in measured(table).items():
        one = SAID["predictions"][name]
        words = (name, f"preregistered: studies/{NAME}/predictions.yaml", one["quantity"])
        claims.append(Claim(name, *words, values, **{key: one.get(key) for key in ("low", "high", "reason")}))
    return claims
