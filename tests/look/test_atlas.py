"""The atlas: differences and relations against other computations of them, and where there are none."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from granularity.look import atlas

ARMS = [atlas.BASELINE, "a", "b", "c", "d", "e"]


@pytest.fixture
def found() -> pd.DataFrame:
    """Four repetitions: `ordered` orders the errors, `noise` is drawn, `sizes` follows G alone."""
    rng, rows = np.random.default_rng(0), []
    for repetition in range(4):
        error, labels = rng.normal(size=6), rng.normal(size=(3, 6))
        values = {"error": error, "ordered": np.exp(error), "noise": rng.normal(size=6)}
        values |= dict(zip(atlas.LABELS, labels, strict=True)) | {"sizes": -(labels[0] ** 3)}
        name = f"results/{repetition}"
        rows += [(name, arm, key, one) for key, of in values.items() for arm, one in zip(ARMS, of, strict=True)]
    return pd.DataFrame(rows, columns=["repetition", "arm", "key", "value"])


def test_differences_are_paired_and_corrected_for_all(found):
    made, table = atlas.differences(found, ["noise", "error"]), atlas.tables(found)["noise"]
    told = stats.ttest_rel(table["b"], table[atlas.BASELINE])
    reach = told.confidence_interval(1 - 0.05 / 10)  # two keys, five arms
    row = made.loc[("noise", "b")]
    assert (row["low"], row["high"]) == pytest.approx((reach.low, reach.high))
    assert row["mean"] == pytest.approx(table["b"].mean()) and row["p"] >= told.pvalue


def test_units_that_share_pairs_have_the_jackknifes_error(found):
    """The reference leaves out each repetition with all its pairs."""
    pairs = np.random.default_rng(1).normal(size=(4, 4, 6))
    pairs += pairs.transpose(1, 0, 2)
    rows = []
    for one in range(4):
        values = np.delete(pairs[one], one, axis=0).mean(axis=0)
        rows += [(f"results/{one}", arm, "agreement/cka", value) for arm, value in zip(ARMS, values, strict=True)]
    table = pd.DataFrame(rows, columns=["repetition", "arm", "key", "value"])
    without = [np.delete(np.delete(pairs[..., 1] - pairs[..., 0], one, 0), one, 1) for one in range(4)]
    left = [part[np.triu_indices(3, 1)].mean() for part in without]
    error = np.sqrt(3 * np.var(left))
    row = atlas.differences(table[table["arm"].isin(ARMS[:2])], ["agreement/cka"]).loc[("agreement/cka", "a")]
    assert row["high"] - row["difference"] == pytest.approx(error * stats.t.ppf(0.975, 3))
    two = table[table["repetition"] < "results/2"]
    assert atlas.differences(two, ["agreement/cka"])["low"].isna().all()
    other, own = (
        atlas.relations(pd.concat([found, table.assign(key=key)]), [key]).loc[key] for key in ("cka", "agreement/cka")
    )
    assert (own["high"] - own["low"]).tolist() == pytest.approx(3 * (other["high"] - other["low"]))


def test_backbones_of_a_draw_count_as_one(found):
    """They share images and labels, so as many of them as one likes make no draw more."""
    folders = found.assign(repetition=found["repetition"].str.replace("results/", "draw-") + "/0")
    again = folders.assign(repetition=folders["repetition"].str.replace("/0", "/1"))
    for one in (folders, pd.concat([folders, again])):
        pd.testing.assert_frame_equal(atlas.differences(one, ["noise"]), atlas.differences(found, ["noise"]))


def test_what_orders_the_errors_predicts_them_and_what_follows_the_classes_is_found(found):
    made = atlas.relations(found, ["ordered", "noise", "sizes"])["difference"].round(6)
    assert made["ordered", "error"] == 1 and abs(made["noise", "error"]) < 0.7
    assert made["sizes", "G"] == -1 and made["sizes", "learnt"] == made["sizes", "meaning"] == 0


def test_few_arms_have_no_relations(found):
    few = found[found["arm"].isin(ARMS[:4])]
    assert atlas.relations(few, ["ordered"]).empty and len(atlas.differences(few, ["ordered"])) == 4
