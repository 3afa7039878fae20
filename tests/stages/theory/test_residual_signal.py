"""Finding residual signal: the law by hand and against the staircase of parity, label spaces, order, and its arms."""

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.claims import preregistered
from granularity.claims.claim import CHANGED, NOT_TESTED
from granularity.stages.theory import engine, simulation
from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds import residual_signal
from granularity.stages.theory.worlds.feature_emergence import spaces as parity
from granularity.stages.theory.worlds.residual_signal import claims, law, spaces
from granularity.stages.theory.worlds.residual_signal.arms import MODULES
from granularity.stages.theory.worlds.staircase.arms import refinements


def space_of(world, **setting):
    return spaces.WORLDS[world][0](Trial(MODULES[world].Settings(**setting), 0))


def test_over_fair_coins_it_is_the_staircase_of_parity():
    for one in refinements(12, 3, [0.0, 0.5]):
        one.pop("name")
        found = law.staircase(space_of("feature_emergence", structured=False, labels="table", **one))
        assert found == pytest.approx(parity.law(**one).staircase, abs=1e-12)


def test_structured_inputs_show_every_pattern_in_parity():
    assert law.staircase(space_of("feature_emergence", structured=False)) == pytest.approx(0, abs=1e-12)
    # Half the inputs correlate with a pattern fully: E[y x_v] = 1/2, and the two indicators are (1 +- y) / 2.
    assert law.signals(space_of("feature_emergence"), []) == pytest.approx(np.full(5, 0.25 * 2**0.5), abs=1e-9)


@pytest.mark.parametrize("g", [1, 2, 8])
def test_patches_leave_a_residual_on_subclasses_where_labels_are_finer(g):
    one = space_of("label_granularity", g=g)
    order, _ = law.climb(one)
    assert set(order[:2]) == {0, 1}  # the common features come first
    # Given its superclass, 1/2 x (1/k)^2 x |e_label - 1/g|^2.
    assert law.staircase(one) == pytest.approx(np.sqrt(0.5 / 8**2 * (1 - 1 / g)), abs=1e-9)


def test_random_labels_leave_one_on_few_samples_only():
    def signal(**setting):
        return law.staircase(space_of("label_granularity", g=8, labels="random_within", **setting))

    few, many = signal(fixed=True, per_subclass=4), signal(fixed=True, per_subclass=64)
    assert signal() == pytest.approx(0, abs=1e-9)
    assert 0 < many < few / 2 < law.staircase(space_of("label_granularity", g=8))


def test_background_labels_say_nothing_of_subclasses_and_fixed_samples_are_those_of_the_run():
    common = {"task": "granularity", "objective": "softmax"}
    fine = law.staircase(space_of("feature_contamination", **common, g=4))
    assert fine == pytest.approx(np.sqrt(1 - 1 / 4) / 4, abs=1e-9)
    for labels in ("background", "random"):
        none = space_of("feature_contamination", **common, g=4, labels=labels)
        assert law.staircase(none) == pytest.approx(0, abs=1e-9) and none.weight.sum() == pytest.approx(1)
    fixed = space_of("feature_contamination", **common, g=4, labels="random", data="fixed", batch=64)
    assert 0 < law.staircase(fixed) < fine and (fixed.weight * 64 == pytest.approx(np.rint(fixed.weight * 64)))


def test_the_second_view_is_needed_for_the_stronger_one_alone():
    common = {"pretrain": "labels", "mu": 0.0, "samples": 300}
    merged, classes = (law.staircase(space_of("mask_reconstruction", **common, granularity=n)) for n in (5, 10))
    bit, stronger = (
        law.staircase(space_of("mask_reconstruction", **common, granularity=20, labels=labels))
        for labels in ("random", "view")
    )
    assert merged == pytest.approx(0, abs=1e-9) and classes == pytest.approx(0, abs=1e-9)
    assert 0 < bit < stronger / 2


def test_order_counts_pairs_that_score_and_every_seed_tell_apart():
    score = np.array([0.0, 1.0, 1.01, 2.0])
    learnt = np.array([[0, 0.1], [1, 1], [5, 5], [3, 0.5]])
    ranked = claims.pairs(score, learnt)
    assert ranked[1, 0] == 1 and ranked[2, 1] == 0 and ranked[3, 1] == 0 and ranked[3, 2] == -1
    assert claims.order(ranked)[0] == pytest.approx(3 / 4)
    assert claims.order(ranked, np.array([[1.0, 1, 1, 0], [0, 0, 1, 1]])).tolist() == [1.0, 0.0]
    assert np.isnan(claims.order(np.zeros((2, 2)))[0])


def test_a_setting_that_its_world_does_not_know_is_refused_in_a_line():
    with pytest.raises(GranularityError, match="theory: setting: label_granularity: nokey: Extra inputs"):
        simulation.settings_from(residual_signal, {"world": "label_granularity", "setting": "{nokey: 1}"})


def test_arms_can_be_run_judged_and_drawn(tmp_path):
    few = {
        "feature_emergence": {"steps": 4, "n": 100, "test": 50, "batch": 20, "m": 5, "d": 12, "D": 12},
        "label_granularity": {"steps": 2, "d": 20, "patches": 6, "signal": 2},
        "feature_contamination": {"steps": 2, "m": 32},
        "mask_reconstruction": {"pretrain_steps": 2, "finetune_steps": 2, "m": 2, "samples": 60, "test_samples": 50}
        | {"batch": 20},
    }
    registered = preregistered.read(claims.NAME)["arms"]["worlds"]
    assert set(residual_signal.SIZES) == {"quick", "paper"} and set(registered) == set(few)
    arms = []
    for one in residual_signal.SIZES["quick"]:
        part, words = registered[one.world], one.name.partition(": ")[2]
        assert one.arm.name == one.name  # its settings are valid
        if words in (part["coarse"], part["finest"]) or words.startswith("16 random"):
            short = {"seeds": 1, "setting": one.setting | few[one.world]}
            arms.append(residual_signal.Settings(**(one.model_dump() | short)))
    table = engine.run_table(residual_signal, arms, "cpu")
    assert len(table) == len(arms) and table["signal"].notna().all() and table["learnt"].notna().all()
    found = residual_signal.judge(table)
    assert {one.id for one in found} == set(preregistered.read(claims.NAME)["predictions"])
    assert CHANGED not in {one.verdict for one in found}
    residual_signal.figures(table, tmp_path)
    assert (tmp_path / f"{claims.NAME}.svg").stat().st_size > 5000
    assert {one.verdict for one in residual_signal.judge(table.iloc[:0])} == {NOT_TESTED}
