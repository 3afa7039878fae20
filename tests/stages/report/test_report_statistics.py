"""The statistics of the report, against closed forms, by hand, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from granularity.stages.report import statistics


def test_welch_is_the_closed_form():
    arm, baseline = np.array([4.8, 5.1, 4.9, 5.3]), np.array([5.9, 6.2, 6.0, 5.7, 6.4])
    low, high, p = statistics.welch(arm, baseline)
    a, b = arm.var(ddof=1) / len(arm), baseline.var(ddof=1) / len(baseline)
    freedom = (a + b) ** 2 / (a**2 / (len(arm) - 1) + b**2 / (len(baseline) - 1))
    difference, error = arm.mean() - baseline.mean(), np.sqrt(a + b)
    reach = stats.t.ppf(0.975, freedom) * error
    assert (low, high) == pytest.approx((difference - reach, difference + reach))
    assert p == pytest.approx(2 * stats.t.sf(abs(difference) / error, freedom))


@pytest.mark.parametrize("arm, baseline", [([5.0], [6.0, 6.1]), ([5.0, 5.0], [6.0, 6.0]), ([], [6.0, 6.1])])
def test_welch_without_a_measure_of_chance_says_so(arm, baseline):
    assert np.isnan(statistics.welch(arm, baseline)).all()


def test_welch_where_one_side_has_no_spread():
    low, high, p = statistics.welch([5.0, 5.0, 5.0], [6.0, 6.1, 6.2])
    assert low < -1.1 < high < 0 and 0 < p < 0.05


def test_holm_by_hand():
    adjusted = statistics.holm([0.01, 0.04, 0.03, np.nan, 0.005])
    assert adjusted[[0, 1, 2, 4]] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert np.isnan(adjusted[3])
    assert statistics.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert np.isnan(statistics.holm([np.nan])).all()


def test_holm_holds_the_family_wise_error():
    p = np.random.default_rng(0).uniform(size=(4000, 10))
    false = np.mean([statistics.holm(row).min() < 0.05 for row in p])
    assert false == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(
    "low, high, p, expected",
    [
        (-2.0, -1.0, 0.001, "better"),
        (-2.0, -0.1, 0.2, "better_unadjusted"),
        (-1.0, 1.0, 1.0, "overlap"),
        (0.0, 1.0, 0.05, "overlap"),
        (0.1, 1.0, 0.2, "worse_unadjusted"),
        (1.0, 2.0, 0.001, "worse"),
        (np.nan, np.nan, np.nan, "untested"),
    ],
)
def test_outcome(low, high, p, expected):
    assert statistics.outcome(low, high, p) == expected
    assert expected in statistics.OUTCOMES


@pytest.mark.parametrize(
    "outcome, low, high, expected",
    [
        ("better", -3.0, -0.1, "better"),
        ("better", -3.0, 0.1, "better_over_runs"),
        ("better", np.nan, np.nan, "better_untested"),
        ("worse", 0.1, 3.0, "worse"),
        ("worse", -0.1, 3.0, "worse_over_runs"),
        ("better_unadjusted", -3.0, -0.1, "better_unadjusted"),
        ("overlap", -3.0, -0.1, "overlap"),
    ],
)
def test_a_verdict_is_that_over_backbones(outcome, low, high, expected):
    assert statistics.verdict(outcome, low, high) == expected
    assert expected in statistics.VERDICTS
