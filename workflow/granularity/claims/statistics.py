"""Differences between arms over paired repetitions: intervals and adjusted p-values; docs/results.md has the rule."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.95


class Difference(NamedTuple):
    """A mean difference over `pairs`, the degrees of freedom plus one, and its standard error; NaN without any."""

    difference: float
    error: float
    pairs: float


def paired(one: pd.Series, other: pd.Series) -> Difference:
    """The mean of one - other over the seeds that both have, of series with a value per repetition, by its seed.

    The error is NaN with one pair, and where all differ alike: no measure of chance.
    """
    return mean_of((one - other).dropna().to_numpy(float))


def mean_of(differences: Sequence[float]) -> Difference:
    """The mean of paired differences (see :func:`paired`)."""
    differences = np.asarray(differences, dtype=float)
    n = len(differences)
    error = differences.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    # Equal differences leave a spread of rounding, not of chance.
    known = n > 1 and np.ptp(differences) > 1e-9
    return Difference(float(differences.mean()) if n else np.nan, float(error) if known else np.nan, n)


def unpaired(weights: Sequence[float], means: Sequence[float], stds: Sequence[float], n: Sequence[float]) -> Difference:
    """A weighted sum of independent means of `n` runs (Welch, Satterthwaite); the error is NaN where a deviation is."""
    weights, means, stds, n = (np.asarray(part, dtype=float) for part in (weights, means, stds, n))
    variances = weights**2 * stds**2 / n
    total = variances.sum()
    freedom = total**2 / (variances**2 / (n - 1)).sum() if total > 0 else np.nan
    return Difference(float(weights @ means), float(np.sqrt(total)) if total > 0 else np.nan, float(freedom + 1))


def interval(difference: float, error: float, pairs: float, comparisons: int) -> tuple[float, float]:
    """Student's interval of a mean difference, one of so many that hold together at `LEVEL` (Bonferroni)."""
    if np.isnan(error):
        return np.nan, np.nan
    reach = error * stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, pairs - 1)
    return float(difference - reach), float(difference + reach)


def p_value(difference: float, error: float, pairs: float) -> float:
    """Student's two-sided p-value of a mean difference against none; NaN where it has no error."""
    return np.nan if np.isnan(error) else float(2 * stats.t.sf(abs(difference) / error, pairs - 1))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values of several comparisons, in their order; one that is NaN is not counted and stays so."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p)[: int(np.isfinite(p).sum())]
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted.tolist()
