"""One measure of one arm, out of the run table."""

import numpy as np
import pandas as pd

from granularity.stages.theory.runs import at


def test_at_picks_rows_and_keeps_diverged_runs_as_nan():
    rows = [
        ("a", 0, 0, "", 1.0),
        ("a", 0, 5, "T0 end", 2.0),
        ("a", 1, 0, "", 3.0),
        ("a", 1, 2, "diverged", np.nan),
    ]
    table = pd.DataFrame(rows, columns=["setting", "seed", "step", "event", "f"]).assign(phase="train")
    np.testing.assert_array_equal(at(table, "a", "f"), [2, np.nan])
    np.testing.assert_array_equal(at(table, "a", "f", step=0), [1, 3])
    np.testing.assert_array_equal(at(table, "a", "f", event="T0"), [2, np.nan])
    assert at(table, "b", "f").size == 0 and at(table, "a", "missing").size == 0
