"""The statistics of the report: intervals of differences, adjustment for their number, and the verdict that follows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
from scipy import stats

LEVEL = 0.95
OUTCOMES = ("better", "better_unadjusted", "overlap", "worse_unadjusted", "worse", "untested")
# A verdict is an outcome over runs, held against what is left of it when each backbone counts once.
VERDICTS = {
    "better": "better than the baseline",
    "better_over_runs": "lower over runs, not over backbones",
    "better_untested": "lower over runs, too few backbones to tell",
    "better_unadjusted": "lower, but not after adjustment",
    "overlap": "not told apart from the baseline",
    "worse_unadjusted": "higher, but not after adjustment",
    "worse_untested": "higher over runs, too few backbones to tell",
    "worse_over_runs": "higher over runs, not over backbones",
    "worse": "worse than the baseline",
    "untested": "cannot be tested: too few runs, or no spread between them",
    "baseline": "the baseline",
}


def welch(arm: Iterable[float], baseline: Iterable[float]) -> tuple[float, float, float]:
    """Interval and two-sided p-value of the difference of two means, by Welch's t-test.

    Args:
        arm, baseline: validation errors in percent, one per run.

    Returns:
        Lower and upper end of the 95 % interval of mean(arm) - mean(baseline), and the p-value. All are NaN where
        a sample has one value only, or where neither has any spread: such data hold no measure of chance.
    """
    arm, baseline = np.asarray(list(arm), float), np.asarray(list(baseline), float)
    if min(len(arm), len(baseline)) < 2 or np.ptp(arm) + np.ptp(baseline) == 0:
        return np.nan, np.nan, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one of the two has no spread: Welch still holds
        test = stats.ttest_ind(arm, baseline, equal_var=False)
        interval = test.confidence_interval(LEVEL)
    return float(interval.low), float(interval.high), float(test.pvalue)


def holm(p: Iterable[float]) -> np.ndarray:
    """P-values adjusted for their number by Holm's step-down method (Scand. J. Statist. 6, 1979); NaN stays NaN."""
    p = np.asarray(list(p), float)
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps)) if len(order) else []
    return adjusted


def outcome(low: float, high: float, p_holm: float) -> str:
    """One of `OUTCOMES`, from the interval of a difference over runs and its adjusted p-value."""
    if np.isnan(low) or np.isnan(high):
        return "untested"
    if low <= 0 <= high:
        return "overlap"
    side = "better" if high < 0 else "worse"
    return side if p_holm < 1 - LEVEL else f"{side}_unadjusted"


def verdict(outcome: str, backbone_low: float, backbone_high: float) -> str:
    """A key of `VERDICTS`: an outcome over runs, which the interval over backbones confirms or does not.

    Runs that were finetuned from one backbone are not independent, backbones are: an arm is better, or worse, only
    where its interval over backbones excludes zero on the same side.
    """
    if outcome not in ("better", "worse"):
        return outcome
    if np.isnan(backbone_low) or np.isnan(backbone_high):
        return f"{outcome}_untested"
    holds = backbone_high < 0 if outcome == "better" else backbone_low > 0
    return outcome if holds else f"{outcome}_over_runs"
