"""Effective robustness: against a line fitted by another library; none on a line or a plane; refusals."""

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from granularity.base.errors import GranularityError
from granularity.look.robustness import effective_robustness

REFERENCES = ["one", "two", "three", "four"]


@pytest.fixture
def errors() -> pd.DataFrame:
    index = pd.MultiIndex.from_product([range(3), [*REFERENCES, "own"]], names=["repetition", "arm"])
    drawn = np.random.default_rng(0).normal(size=(15, 3))
    return pd.DataFrame(100 * special.expit(drawn), index, ["val", "also", "grey"])


def test_it_is_what_a_line_through_the_references_leaves(errors):
    expected, there = [], special.logit
    for _, own in (1 - errors / 100).groupby(level="repetition"):
        before, after = own["val"].droplevel(0), own["grey"].droplevel(0)
        line = stats.linregress(there(before[REFERENCES]), there(after[REFERENCES]))
        expected.append(100 * (after["own"] - special.expit(line.slope * there(before["own"]) + line.intercept)))
    told = effective_robustness(errors.drop(columns="also"), REFERENCES).xs("own", level="arm")["grey"]
    assert told.tolist() == pytest.approx(expected)


def test_it_is_zero_on_a_plane_over_two_sets(errors):
    share = special.logit(1 - errors / 100)
    errors["grey"] = 100 * special.expit(0.4 * share["also"] - 0.8 * share["val"] - 0.3)
    assert effective_robustness(errors, REFERENCES, ["val", "also"])["grey"].abs().max() < 1e-9
    assert effective_robustness(errors.drop(columns="also"), REFERENCES)["grey"].abs().max() > 1


def test_what_has_no_line_is_refused(errors):
    with pytest.raises(GranularityError, match="0: too few references for a line over val, also"):
        effective_robustness(errors, ["one", "two"], ("val", "also"))
    errors.loc[(1, "own"), "grey"] = 100
    with pytest.raises(GranularityError, match=r"1: an accuracy is 0 or 1 and has no logit"):
        effective_robustness(errors, REFERENCES)
