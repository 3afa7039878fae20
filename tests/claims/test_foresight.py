"""What predicts a gain: found where it is so, not found where it is not, and not judged where that cannot be told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from granularity.claims import claim, foresight
from granularity.claims.foresight import CANDIDATES, DUMB, FEATURES, MODEL, PROPERTIES

DATA = ("cars", "birds", "stars")


def evidence(gain, data=DATA, spaces=20, conditions=("train-100", "train-900"), noise=0.1, seed=0) -> pd.DataFrame:
    """Label spaces of random properties, which gain what a function of their table says; the same at all sizes."""
    rng, tables = np.random.default_rng(seed), []
    for name in data:
        known = pd.DataFrame({one: rng.normal(size=spaces) for one in PROPERTIES})
        known["space"] = [f"space-{i}" for i in range(spaces)]
        for condition in conditions:
            where = {
                "data": name,
                "configuration": name,
                "condition": condition,
                "network": "net",
                "transfer": "target",
            }
            halves = {half: gain(known) + noise * rng.normal(size=spaces) for half in ("gain_even", "gain_odd")}
            tables.append(known.assign(**where, **halves, gain=sum(halves.values()) / 2, meaningless=known["G"] > 1))
    return pd.concat(tables, ignore_index=True)


def rho(found: foresight.Record) -> pd.Series:
    return found.table.set_index("predictor")["rho"]


def verdicts(found: foresight.Record) -> dict[str, str]:
    return {one.id: one.verdict for one in foresight.claims(found)}


def test_a_property_that_decides_beats_the_dumb_ones_whatever_its_sign():
    found = foresight.record(evidence(lambda known: -known["signal"]))
    assert found.winner == "signal" and rho(found)["signal"] > 0.9
    assert (found.data, found.groups, found.spaces) == (3, 6, 120)
    assert found.ceiling > 0.9
    said = verdicts(found)
    assert said["ahead, signal"] == said["rho, signal"] == claim.HOLDS
    assert said["ahead, compactness"] == said["rho, nmi_finest"] == claim.FAILS


def test_what_only_all_properties_together_say_the_model_says():
    made = evidence(lambda known: known[["signal", "evenness", "compactness", "weakest"]].sum(axis=1))
    found = foresight.record(made)
    assert found.winner == MODEL and rho(found)[MODEL] > 0.8 > 0.75 > rho(found)["signal"]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_beats_where_gains_are_chance(seed):
    rng = np.random.default_rng(seed)
    found = foresight.record(evidence(lambda known: rng.normal(size=len(known)), seed=seed))
    assert found.winner is None and abs(found.ceiling) < 0.4
    assert claim.HOLDS not in {verdict for id, verdict in verdicts(found).items() if id.startswith("ahead")}


def test_nothing_beats_what_is_dumb_where_that_decides():
    found = foresight.record(evidence(lambda known: known["nmi_finest"]))
    assert found.winner is None and rho(found)["nmi_finest"] > 0.9
    assert (found.table.set_index("predictor").loc[CANDIDATES, "worst"] < 0).all()


def test_a_sign_is_that_of_the_other_data_sets():
    """In cars more is better and in birds less: each of the two is told the wrong thing by the other."""
    signs = iter([1, 1, -1, -1])
    found = foresight.record(evidence(lambda known: next(signs) * known["signal"], DATA[:2], conditions=("a",)))
    assert rho(found)["signal"] < -0.9
    assert found.within.loc["cars", "signal"] > 0.9 and found.within.loc["birds", "signal"] < -0.9


def test_one_data_set_is_not_judged_nor_are_small_groups():
    whole = evidence(lambda known: known["signal"])
    small = whole[(whole["data"] == "cars") | whole["space"].isin(["space-1", "space-2", "space-3"])]
    found = foresight.record(small)
    assert (found.data, len(found.table), found.winner) == (1, 0, None) and found.within["signal"].item() > 0.9
    assert set(verdicts(found).values()) == {claim.NOT_TESTED}


def test_correlations_are_those_of_scipy_and_a_property_that_is_unknown_has_none():
    made = evidence(lambda known: known["signal"].round(), DATA[:2], conditions=("a",), noise=0.5)
    made["signal"] = made["signal"].round()  # ties
    made.loc[made["data"] == "cars", "weakest"] = np.nan
    found = foresight.record(made)
    for name, rows in made.groupby("data"):
        assert found.by_data.loc[name, "signal"] == pytest.approx(stats.spearmanr(rows["signal"], rows["gain"])[0])
    assert found.by_data.loc["cars", "weakest"] == 0 != found.by_data.loc["birds", "weakest"]


def test_the_model_is_ridge_regression_of_ranks():
    from sklearn.linear_model import Ridge

    made = evidence(lambda known: known["signal"] - known["evenness"], DATA[:2], conditions=("a",), noise=1.0)
    ranked = made.groupby("data")[[*FEATURES, "gain"]].rank().sub(0.5) / 20 - 0.5
    train, left = (made["data"] == name for name in ("cars", "birds"))
    model = Ridge(foresight.PENALTY * 20, fit_intercept=False).fit(ranked.loc[train, FEATURES], ranked["gain"][train])
    scores = model.predict(ranked.loc[left, FEATURES])
    expected = stats.spearmanr(scores, made["gain"][left])[0]
    assert foresight.record(made).by_data.loc["birds", MODEL] == pytest.approx(expected)
    assert foresight.score(made, made[left], MODEL, "birds") == pytest.approx(scores)


def test_label_spaces_are_scored_without_their_own_data_set():
    made = evidence(lambda known: -known["signal"])
    mine = made[(made["data"] == "cars") & (made["condition"] == "train-100")]
    wrong = made.assign(gain=made["gain"].where(made["data"] != "cars", -made["gain"]))
    for predictor in ("signal", MODEL, *DUMB):
        assert (foresight.score(made, mine, predictor, "cars") == foresight.score(wrong, mine, predictor, "cars")).all()
    assert (foresight.score(made, mine, "signal", "cars") == -mine["signal"].round(9)).all()
