"""Differences between arms over paired repetitions: intervals and adjusted p-values (rule: docs/results.md)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.95


class Difference(NamedTuple):
    """A mean difference, its standard error (NaN: unknown), and `pairs`, the degrees of freedom plus one."""

    difference: float
    error: float
    pairs: float


def paired(one: pd.Series, other: pd.Series) -> Difference:
    """Return the mean of one - other over the seeds that both series have; a series has one value per seed.

    The error is NaN with one pair or if all differences are equal: then chance cannot be estimated.
    """
    return mean_of((one - other).dropna().to_numpy(float))


def mean_of(differences: Sequence[float]) -> Difference:
    """Return the mean of paired differences (see :func:`paired`)."""
    differences = np.asarray(differences, dtype=float)
    n = len(differences)
    error = differences.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    # The spread of equal differences is rounding error, not chance.
    known = n > 1 and np.ptp(differences) > 1e-9
    return Difference(float(differences.mean()) if n else np.nan, float(error) if known else np.nan, n)


def unpaired(weights: Sequence[float], means: Sequence[float], stds: Sequence[float], n: Sequence[float]) -> Difference:
    """Return a weighted sum of independent means of `n` runs (Welch, Satterthwaite); its error is NaN if any std is."""
    weights, means, stds, n = (np.asarray(part, dtype=float) for part in (weights, means, stds, n))
    variances = weights**2 * stds**2 / n
    total = variances.sum()
    freedom = total**2 / (variances**2 / (n - 1)).sum() if total > 0 else np.nan
    return Difference(float(weights @ means), float(np.sqrt(total)) if total > 0 else np.nan, float(freedom + 1))


def interval(difference: float, error: float, pairs: float, comparisons: int) -> tuple[float, float]:
    """Return Student's interval of a mean difference; `comparisons` intervals jointly hold at `LEVEL` (Bonferroni)."""
    if np.isnan(error):
        return np.nan, np.nan
    reach = error * stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, pairs - 1)
    return float(difference - reach), float(difference + reach)


def p_value(difference: float, error: float, pairs: float) -> float:
    """Return Student's two-sided p-value of a mean difference against 0; NaN if the error is NaN."""
    return np.nan if np.isnan(error) else float(2 * stats.t.sf(abs(difference) / error, pairs - 1))


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order given; NaNs are not counted and stay NaN."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p)[: int(np.isfinite(p).sum())]
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted.tolist()
