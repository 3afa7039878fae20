"""Verdicts follow from numbers."""

import math

import numpy as np
import pandas as pd
import pytest

from granularity.stages.theory import checks
from granularity.stages.theory.checks import FAILS, HOLDS, NOT_RUN, REPORTED, Check


@pytest.mark.parametrize(
    ("values", "low", "high", "judged", "verdict"),
    [
        ([1, 2], 1, 2, "every seed", HOLDS),
        ([1, 2.1], 1, 2, "every seed", FAILS),
        ([1, 2.1], 1, 2, "mean", HOLDS),
        ([1, math.nan], 0, 2, "every seed", FAILS),
        ([math.nan, 1], 0, 2, "mean", FAILS),
        ([], 0, 2, "every seed", NOT_RUN),
        ([1.0], -math.inf, math.inf, "every seed", REPORTED),
        ([0.0], checks.ABOVE_ZERO, math.inf, "every seed", FAILS),
        ([1e-300], checks.ABOVE_ZERO, math.inf, "every seed", HOLDS),
    ],
)
def test_verdict(values, low, high, judged, verdict):
    assert Check("S1", "claim", "source", "quantity", values, low, high, judged).verdict == verdict


def test_a_claim_fails_with_one_quantity_and_needs_one_that_ran():
    def one(id, values):
        return Check(id, "claim", "source", "quantity", values, 0, 1)

    found = [one("S1", [0.5]), one("S1", [2]), one("S2", []), one("S3", []), one("S3", [1])]
    assert checks.verdicts(found) == {"S1": FAILS, "S2": NOT_RUN, "S3": HOLDS}


def test_table_has_spread_and_band():
    row = checks.table([Check("S1", "c", "s", "q", [1.0, 3.0], 0, 4)]).iloc[0]
    assert (row["measured"], row["minimum"], row["maximum"], row["seeds"]) == (2, 1, 3, 2)
    assert row["sd"] == pytest.approx(math.sqrt(2)) and row["band"] == "0 to 4"
    assert Check("S1", "c", "s", "q", [1.0]).band == "reported, no band"
    assert Check("S1", "c", "s", "q", [1.0], 1, 1).band == "= 1"


def test_at_picks_rows_and_keeps_diverged_runs_as_nan():
    rows = [
        ("a", 0, 0, "", 1.0),
        ("a", 0, 5, "T0 end", 2.0),
        ("a", 1, 0, "", 3.0),
        ("a", 1, 2, "diverged", np.nan),
    ]
    table = pd.DataFrame(rows, columns=["setting", "seed", "step", "event", "f"]).assign(phase="train")
    np.testing.assert_array_equal(checks.at(table, "a", "f"), [2, np.nan])
    np.testing.assert_array_equal(checks.at(table, "a", "f", step=0), [1, 3])
    np.testing.assert_array_equal(checks.at(table, "a", "f", event="T0"), [2, np.nan])
    assert checks.at(table, "b", "f").size == 0 and checks.at(table, "a", "missing").size == 0
