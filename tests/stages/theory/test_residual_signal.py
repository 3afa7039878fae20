"""The study residual_signal: the law by hand and against the staircase of parity, label spaces, order, and its arms."""

import sys
from functools import partial

import numpy as np
import pytest

from granularity.base import extensions
from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds.feature_emergence import spaces as parity
from support.worlds import studied


@pytest.fixture(scope="module", autouse=True)
def loaded():
    with studied("residual_signal/residual_signal.py", "parity/staircase.py"):
        yield


@pytest.fixture
def residual_signal():
    return extensions.find("world", "residual_signal")


@pytest.fixture
def spaces(residual_signal):
    return sys.modules["spaces"]  # beside it


@pytest.fixture
def space_of(residual_signal):
    worlds = residual_signal.WORLDS
    return lambda world, **setting: worlds[world][0](Trial(residual_signal.MODULES[world].Settings(**setting), 0))


def test_over_fair_coins_it_is_the_staircase_of_parity(spaces, space_of):
    for one in extensions.find("world", "staircase").refinements(12, 3, [0.0, 0.5]):
        one.pop("name")
        found = spaces.staircase(space_of("feature_emergence", structured=False, labels="table", **one))
        assert found == pytest.approx(parity.law(**one).staircase, abs=1e-12)


def test_structured_inputs_show_every_pattern_in_parity(spaces, space_of):
    assert spaces.staircase(space_of("feature_emergence", structured=False)) == pytest.approx(0, abs=1e-12)
    # Half the inputs correlate with a pattern fully: E[y x_v] = 1/2, and the two indicators are (1 +- y) / 2.
    assert spaces.signals(space_of("feature_emergence"), []) == pytest.approx(np.full(5, 0.25 * 2**0.5), abs=1e-9)


@pytest.mark.parametrize("g", [1, 2, 8])
def test_patches_leave_a_residual_on_subclasses_where_labels_are_finer(spaces, space_of, g):
    one = space_of("label_granularity", g=g)
    order, _ = parity.climb(partial(spaces.signals, one), one.shown.shape[1])
    assert set(order[:2]) == {0, 1}  # the common features come first
    # Given its superclass, 1/2 x (1/k)^2 x |e_label - 1/g|^2.
    assert spaces.staircase(one) == pytest.approx(np.sqrt(0.5 / 8**2 * (1 - 1 / g)), abs=1e-9)


def test_random_labels_leave_one_on_few_samples_only(spaces, space_of):
    def signal(**setting):
        return spaces.staircase(space_of("label_granularity", g=8, labels="random_within", **setting))

    few, many = signal(fixed=True, per_subclass=4), signal(fixed=True, per_subclass=64)
    assert signal() == pytest.approx(0, abs=1e-9)
    assert 0 < many < few / 2 < spaces.staircase(space_of("label_granularity", g=8))


def test_background_labels_say_nothing_of_subclasses_and_fixed_samples_are_those_of_the_run(spaces, space_of):
    common = {"task": "granularity", "objective": "softmax"}
    fine = spaces.staircase(space_of("feature_contamination", **common, g=4))
    assert fine == pytest.approx(np.sqrt(1 - 1 / 4) / 4, abs=1e-9)
    for labels in ("background", "random"):
        none = space_of("feature_contamination", **common, g=4, labels=labels)
        assert spaces.staircase(none) == pytest.approx(0, abs=1e-9) and none.weight.sum() == pytest.approx(1)
    fixed = space_of("feature_contamination", **common, g=4, labels="random", data="fixed", batch=64)
    assert 0 < spaces.staircase(fixed) < fine and (fixed.weight * 64 == pytest.approx(np.rint(fixed.weight * 64)))


def test_the_second_view_is_needed_for_the_stronger_one_alone(spaces, space_of):
    common = {"pretrain": "labels", "mu": 0.0, "samples": 300}
    merged, classes = (spaces.staircase(space_of("mask_reconstruction", **common, granularity=n)) for n in (5, 10))
    bit, stronger = (
        spaces.staircase(space_of("mask_reconstruction", **common, granularity=20, labels=labels))
        for labels in ("random", "view")
    )
    assert merged == pytest.approx(0, abs=1e-9) and classes == pytest.approx(0, abs=1e-9)
    assert 0 < bit < stronger / 2


def test_order_counts_pairs_that_score_and_every_seed_tell_apart(residual_signal):
    score = np.array([0.0, 1.0, 1.01, 2.0])
    learnt = np.array([[0, 0.1], [1, 1], [5, 5], [3, 0.5]])
    ranked = residual_signal.pairs(score, learnt)
    assert ranked[1, 0] == 1 and ranked[2, 1] == 0 and ranked[3, 1] == 0 and ranked[3, 2] == -1
    assert residual_signal.order(ranked)[0] == pytest.approx(3 / 4)
    assert residual_signal.order(ranked, np.array([[1.0, 1, 1, 0], [0, 0, 1, 1]])).tolist() == [1.0, 0.0]
    assert np.isnan(residual_signal.order(np.zeros((2, 2)))[0])
