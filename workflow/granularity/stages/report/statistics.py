"""What follows from an interval: where an arm stands, and the answer to the report's question (docs/predictions.md)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from granularity.claims.statistics import LEVEL

NEGLIGIBLE = 0.05  # a gain of less than this share of the baseline's error is none
MOST_PAIRS = 1000
STANDINGS = {
    "better": "better",
    "worse": "worse",
    "open": "can’t be told",
    "untested": "no interval: fewer than two backbones, or no spread",
    "baseline": "the baseline",
}
ANSWERS = {"yes": "Yes", "no": "No", "open": "Can’t be told"}


def standing(low: float, high: float) -> str:
    """A key of `STANDINGS`, from the interval of a difference of errors."""
    if np.isnan(low):
        return "untested"
    return "better" if high < 0 else "worse" if low > 0 else "open"


def answer(arms: pd.DataFrame) -> str:
    """A key of `ANSWERS`, from arms with `standing`, `low` (points) and `baseline_mean` (percent)."""
    if (arms["standing"] == "better").any():
        return "yes"
    excluded = arms["low"] > -NEGLIGIBLE * arms["baseline_mean"]  # False where there is no interval
    return "no" if len(arms) and excluded.all() else "open"


def pairs_needed(difference: float, error: float, pairs: int, comparisons: int) -> int | None:
    """How many pairs would give an interval without zero, if the mean and the spread of the differences stayed.

    None where there is no spread, or where `MOST_PAIRS` would not do. Half of such experiments would find it: it is a
    size to think of, and no plan.
    """
    if np.isnan(error):
        return None
    n = np.arange(2, MOST_PAIRS + 1)
    reach = error * np.sqrt(pairs / n) * stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, n - 1)
    enough = reach < abs(difference)
    return int(n[np.argmax(enough)]) if enough.any() else None
