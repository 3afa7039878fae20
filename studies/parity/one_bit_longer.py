"""Study: is a random bit slow to teach parity of 11, or does it not? The world `one_bit` with three times the steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import one_bit
import pandas as pd
from one_bit import figures, simulate  # noqa: F401  (part of a world)

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim

EXTENDS, NAME = "world", "one_bit_longer"
SAID = strict_yaml.read(Path(__file__).with_suffix(".yaml"))


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
    return preregistered.claims(SAID, measured(table))
