"""Verdicts follow from numbers."""

import math

import numpy as np
import pytest
from scipy import stats

from granularity.claims import claim, statistics
from granularity.claims.claim import (
    ABOVE_ZERO,
    BELOW_ZERO,
    FAILS,
    HOLDS,
    NO_INTERVAL,
    NOT_RUN,
    NOT_SIGNIFICANT,
    NOT_TESTED,
    REPORTED,
    Claim,
    unmet,
)


@pytest.mark.parametrize(
    ("values", "low", "high", "judged", "verdict"),
    [
        ([1, 2], 1, 2, "every seed", HOLDS),
        ([1, 2.1], 1, 2, "every seed", FAILS),
        ([1, 2.1], 1, 2, "mean", HOLDS),
        ([1, math.nan], 0, 2, "every seed", FAILS),
        ([math.nan, 1], 0, 2, "mean", FAILS),
        ([], 0, 2, "every seed", NOT_TESTED),
        ([1.0], -math.inf, math.inf, "every seed", REPORTED),
        ([0.0], ABOVE_ZERO, math.inf, "every seed", FAILS),
        ([1e-300], ABOVE_ZERO, math.inf, "every seed", HOLDS),
        ([0.0], -math.inf, BELOW_ZERO, "every seed", FAILS),
        ([-1e-300], -math.inf, BELOW_ZERO, "every seed", HOLDS),
    ],
)
def test_verdict(values, low, high, judged, verdict):
    assert Claim("S1", "claim", "source", "quantity", values, low, high, judged).verdict == verdict


def test_a_claim_fails_with_one_quantity_and_needs_one_that_ran():
    def one(id, values, **more):
        return Claim(id, "claim", "source", "quantity", values, 0, 1, **more)

    found = [one("S1", [0.5]), one("S1", [2]), one("S2", []), one("S3", []), one("S3", [1])]
    found += [one("I1", [0.5], kind="identity"), one("S4", [0.5], untested="no such data")]
    assert claim.verdicts(found) == {"S1": FAILS, "S2": NOT_TESTED, "S3": HOLDS, "S4": NOT_TESTED}
    assert claim.verdicts(found, "identity") == {"I1": HOLDS}


def test_what_is_not_tested_says_why_and_keeps_its_numbers():
    few = unmet((True, "never said"), (2 > 3, "2 runs, needs 3"), (False, "1 backbone, needs 2"))
    assert few == "2 runs, needs 3; 1 backbone, needs 2" and unmet((True, "never said")) == ""
    row = claim.table([Claim("S1", "c", "s", "q", [5.0], 0, 1, untested=few)]).iloc[0]
    assert (row["verdict"], row["why"], row["measured"], row["in_band"]) == (NOT_TESTED, few, 5, "")
    row = claim.table([Claim("S1", "c", "s", "q", [])]).iloc[0]
    assert (row["verdict"], row["why"]) == (NOT_TESTED, NOT_RUN)
    assert claim.table([Claim("S1", "c", "s", "q", [1.0], 0, 1)]).iloc[0]["why"] == ""


def test_table_has_spread_band_and_published_values():
    row = claim.table([Claim("S1", "c", "s", "q", [1.0, 3.0], 0, 4, published=[2.0, 1.5])]).iloc[0]
    assert (row["measured"], row["minimum"], row["maximum"], row["seeds"]) == (2, 1, 3, 2)
    assert row["sd"] == pytest.approx(math.sqrt(2)) and row["band"] == "0 to 4"
    assert row["published"] == "1.5 to 2" and row["kind"] == "claim"
    assert Claim("S1", "c", "s", "q", [1.0]).band == "reported, no band"
    assert Claim("S1", "c", "s", "q", [1.0], 1, 1).band == "= 1"
    assert Claim("S1", "c", "s", "q", [1.0], high=BELOW_ZERO).band == "< 0"


def test_a_comparison_is_judged_by_its_interval_among_the_others():
    def one(values, low=ABOVE_ZERO, **more):
        return Claim("S1", "c", "s", "q", values, low, judged="interval", **more)

    values = [0.1, 0.2, 0.3, 0.4, 0.5]
    ends = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert one(values).interval == pytest.approx(tuple(ends)) and one(values).verdict == HOLDS
    assert one([-0.1, *values[1:]]).verdict == NOT_SIGNIFICANT and one([-v for v in values]).verdict == FAILS
    assert one(values, -1.0, high=0.4).verdict == NOT_SIGNIFICANT and one(values, -1.0, high=0.0).verdict == FAILS
    found = claim.together([one(values), one([]), one([0.1, 0.11, 0.12]), one([5.0])])
    ps = [float(stats.ttest_1samp(found[i].values, 0).pvalue) for i in (0, 2)]
    assert [c.comparisons for c in found] == [2] * 4
    assert found[0].p == pytest.approx(max(ps[0], 2 * ps[1])) and found[2].p == pytest.approx(2 * ps[1])
    corrected = stats.ttest_1samp(values, 0).confidence_interval(0.975)
    assert found[0].interval == pytest.approx(tuple(corrected))
    row = claim.table(found).iloc[0]
    assert (row["interval_low"], row["p"], row["comparisons"]) == (found[0].interval[0], found[0].p, 2)
    assert (found[1].why, found[3].why, found[3].verdict) == (NOT_RUN, NO_INTERVAL, NOT_TESTED)
    assert one([1.0, math.nan, 2.0]).verdict == FAILS


def test_printed_means_are_compared_as_welch_does():
    one, other = np.array([1.0, 1.4, 1.1, 0.9, 1.3, 1.2]), np.array([2.0, 2.5, 1.8])
    means, stds = [one.mean(), other.mean()], [one.std(ddof=1), other.std(ddof=1)]
    found = statistics.unpaired([1, -1], means, stds, [6, 3])
    welch = stats.ttest_ind(one, other, equal_var=False)
    assert statistics.interval(*found, 1) == pytest.approx(tuple(welch.confidence_interval(0.95)))
    assert statistics.p_value(*found) == pytest.approx(welch.pvalue) and found.pairs - 1 == pytest.approx(welch.df)
    assert math.isnan(statistics.unpaired([1, -1], means, [stds[0], math.nan], [6, 1]).error)


def test_holm_steps_down_and_leaves_out_what_has_no_p_value():
    found = statistics.holm([0.01, math.nan, 0.04, 0.03])
    assert found[:1] + found[2:] == pytest.approx([0.03, 0.06, 0.06]) and math.isnan(found[1])
    assert statistics.holm([0.9, 0.8]) == [1, 1] and statistics.holm([]) == []


def test_a_row_names_its_arms_the_command_and_the_conditions():
    one = Claim("S1", "c", "s", "q", [1.0], arms=("A fine", "b"), conditions={"n < d": True, "c < 1": False})
    row = claim.table([one], command=lambda arms: f"run {len(arms)}").iloc[0]
    assert (row["arms"], row["command"]) == ("A fine; b", "run 2")
    assert row["conditions"] == "n < d: met; c < 1: NOT met"
