"""The statistics of the report, against closed forms, by hand, and by simulation."""

import numpy as np
import pandas as pd
import pytest

from granularity.claims.statistics import interval, paired
from granularity.stages.report import comparisons as statistics


def errors(*values, seeds=None):
    return pd.Series(values, index=seeds or range(len(values)), dtype=float)


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
    "intervals, expected",
    [
        ([(-2, -1), (-1, 1)], "yes"),
        ([(0.1, 1), (0, 1)], "no"),
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
