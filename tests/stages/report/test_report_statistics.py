"""The statistics of the report, against closed forms, by hand, and by simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from granularity.claims.statistics import interval, paired
from granularity.stages.report import statistics


def errors(*values, seeds=None):
    return pd.Series(values, index=seeds or range(len(values)), dtype=float)


def test_a_difference_is_that_of_scipys_paired_test():
    one, other = errors(4.8, 5.1, 4.9, 5.3, 5.0), errors(5.9, 6.2, 6.0, 5.7, 6.4)
    test = stats.ttest_rel(one, other)
    found = paired(one, other)
    assert found.difference == pytest.approx((one - other).mean()) and found.pairs == 5
    assert found.difference / found.error == pytest.approx(test.statistic)
    assert interval(*found, 1) == pytest.approx(tuple(test.confidence_interval(0.95)))
    corrected = tuple(test.confidence_interval(1 - 0.05 / 7))
    assert interval(*found, 7) == pytest.approx(corrected)


def test_pairs_are_those_of_the_same_seed():
    one, other = errors(1, 2, 4, seeds=[0, 1, 2]), errors(7, 3, 1, 9, seeds=[2, 1, 0, 3])
    assert paired(one, other) == paired(errors(1, 2, 4), errors(1, 3, 7))
    assert paired(one, other).pairs == 3


@pytest.mark.parametrize(
    "one, other, difference, pairs",
    [
        (errors(5.0), errors(6.0), -1.0, 1),
        (errors(5.0, 5.0), errors(6.0, 6.0), -1.0, 2),
        (errors(0.1 + 0.2, 0.3), errors(0.2, 0.2), 0.1, 2),  # a spread of rounding alone
        (errors(5.0, seeds=[0]), errors(6.0, seeds=[1]), np.nan, 0),
        (errors(5.0, np.nan), errors(6.0, 6.0), -1.0, 1),
    ],
    ids=["one backbone", "no spread", "rounding", "no seed in common", "a missing seed"],
)
def test_without_a_measure_of_chance_there_is_no_interval(one, other, difference, pairs):
    found = paired(one, other)
    assert found.difference == pytest.approx(difference, nan_ok=True) and found.pairs == pairs
    low, high = interval(*found, 3)
    assert np.isnan([low, high]).all() and statistics.standing(low, high) == "untested"


def test_intervals_of_a_question_hold_together():
    """Of 11 arms without any effect, against one baseline, one is told apart in at most 5 % of reports."""
    draws = np.random.default_rng(0).standard_normal((2000, 12, 8))

    def told(reports, comparisons):
        found = 0
        for report in reports:
            arms = [paired(errors(*arm), errors(*report[0])) for arm in report[1:]]
            found += any(statistics.standing(*interval(*arm, comparisons)) != "open" for arm in arms)
        return found / len(reports)

    assert 0.01 < told(draws[:500], 11) < 0.06
    assert told(draws[:200], 1) > 0.15  # without the correction


@pytest.mark.parametrize("comparisons", [1, 6])
def test_so_many_pairs_would_tell_the_same_difference(comparisons):
    """The fewest pairs whose interval leaves zero out, with the mean and the spread that five have."""
    mean, error, pairs = paired(errors(-1.0, 0.4, -0.3, 0.6, -0.9), errors(0, 0, 0, 0, 0))
    assert interval(mean, error, pairs, comparisons)[1] > 0
    needed = statistics.pairs_needed(mean, error, pairs, comparisons)
    for n, told in ((needed - 1, False), (needed, True)):
        assert (interval(mean, error * np.sqrt(pairs / n), n, comparisons)[1] < 0) == told
    assert statistics.pairs_needed(0.0, error, pairs, 1) is None
    assert statistics.pairs_needed(1.0, np.nan, 1, 1) is None


@pytest.mark.parametrize(
    "low, high, expected",
    [(-2, -1, "better"), (-1, 1, "open"), (0, 1, "open"), (0.1, 1, "worse"), (np.nan, np.nan, "untested")],
)
def test_standing(low, high, expected):
    assert statistics.standing(low, high) == expected and expected in statistics.STANDINGS


@pytest.mark.parametrize(
    "intervals, expected",
    [
        ([(-2, -1), (-1, 1)], "yes"),
        ([(-2, -1), (1, 2)], "yes"),
        ([(-0.2, 1), (0.1, 2)], "no"),  # a twentieth of the baseline's 6 % is 0.3
        ([(-0.4, 1), (0.1, 2)], "open"),
        ([(-0.2, 1), (np.nan, np.nan)], "open"),
        ([(np.nan, np.nan)], "open"),
        ([], "open"),
    ],
)
def test_answer(intervals, expected):
    arms = pd.DataFrame(intervals, columns=["low", "high"], dtype=float)
    arms["standing"] = [statistics.standing(low, high) for low, high in intervals]
    assert statistics.answer(arms.assign(baseline_mean=6.0)) == expected and expected in statistics.ANSWERS
