"""Verdicts follow from numbers."""

import math

import pytest

from granularity.claims import claim
from granularity.claims.claim import (
    ABOVE_ZERO,
    BELOW_ZERO,
    FAILS,
    HOLDS,
    NOT_RUN,
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
