"""The study fixed_images: labels in equal parts, as many neurons whatever g, last steps, the formula, bad settings."""

import numpy as np
import pytest
import torch

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.stages.theory import engine, simulation
from support.worlds import studied

SMALL = {"d": 16, "k": 2, "per_subclass": 4, "patches": 8, "signal": 2, "steps": 14, "coarse_steps": 4, "n_act": 1}


@pytest.fixture(scope="module")
def world():
    with studied("fixed_images/fixed_images.py"):
        yield extensions.find("world", "fixed_images")


@pytest.fixture
def labels_of(world):
    def drawn(seed=0, **setting):
        return world.draw_labels(world.Settings(**SMALL | setting), torch.Generator().manual_seed(seed)).tolist()

    return drawn


def test_labels_merge_subclasses_or_cut_them_into_equal_parts(labels_of):
    assert labels_of(g=1) == [0] * 8 + [1] * 8
    assert labels_of(g=2) == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert labels_of(g=4) == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7]
    assert labels_of(g=8) == list(range(16))
    assert labels_of(k=4, per_subclass=2, g=2) == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]


def test_random_labels_are_as_many_each_within_a_superclass_and_the_seeds(labels_of):
    drawn = [labels_of(seed, g=4, labels="random") for seed in (0, 1, 0)]
    assert drawn[0] != drawn[1] and drawn[0] == drawn[2]
    for one in drawn:
        assert sorted(one[:8]) == [0, 0, 1, 1, 2, 2, 3, 3] and sorted(one[8:]) == [4, 4, 5, 5, 6, 6, 7, 7]


def test_every_arm_has_as_many_neurons_of_each_feature_as_those_with_two_labels(world):
    for arm in world.SIZES["paper"]:
        features = np.bincount([feature for _, feature in arm.slots()])
        assert set(features) == {16} and len(features) == 2 + 2 * arm.k, arm.name
        assert arm.eta == pytest.approx(0.2 * arm.g)


def test_the_last_steps_are_on_superclasses_and_purity_is_a_cosine(world):
    arms = [world.Settings(**SMALL, name=str(rate), g=4, finetune_eta=rate, seeds=2, eta=0.8) for rate in (0.2, 20.0)]
    table = engine.run_table(world, arms, "cpu")
    one, two = (table[table["setting"] == arm.name].reset_index(drop=True) for arm in arms)
    early = one["step"] == 10
    assert early.sum() == 2 and (one["loss"][early] == two["loss"][early]).all()
    assert (one["loss"][~early] != two["loss"][~early]).all()
    assert table["purity"].between(0.3, 1).all() and table["error"].between(0, 1).all()


def test_the_formula_is_largest_at_the_number_of_subclasses_and_counts_images_per_label(world):
    g, formula = np.array([1, 2, 4, 8, 16]), world.formula
    assert [g[formula(np.full(5, n), g).argmax()] for n in (4, 16, 256)] == [4, 4, 4]
    assert formula(4, 16) == pytest.approx(formula(1, 4)) and formula(9, 1) == 0
    # One image shows 4 (1 - 4/16) = 3 patches; memory's part is 0.2^2 x 64 / 3.
    assert formula(1, 4) == pytest.approx((0.75 / (1 + 2.56 / 3)) ** 0.5)


@pytest.mark.parametrize(
    ("key", "value", "said"), [("g", "3", "g: must merge 8"), ("fixed", "true", "fixed: has no effect in this world")]
)
def test_settings_that_do_not_hold_are_refused(world, key, value, said):
    with pytest.raises(GranularityError, match=said):
        simulation.simulate("fixed_images", {key: value})
