"""The study parity: label spaces of equal R, a network that learns from them, times, ratios and growth."""

import numpy as np
import pandas as pd
import pytest

from granularity.base import extensions
from granularity.stages.theory import engine
from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds.feature_emergence.spaces import PARITY, signal
from support import worlds


@pytest.fixture(scope="module", autouse=True)
def loaded():
    with worlds.studied(*worlds.PARITY):
        yield


@pytest.fixture
def stairs():
    return extensions.find("world", "stairs")


@pytest.fixture
def one_bit():
    return extensions.find("world", "one_bit")


def test_a_triple_has_one_r_and_differs_by_its_stairs_alone(stairs):
    triples = stairs.matched(20, 5, [0.08, 0.06])
    assert len({(triple[0].signal, *(one.products for one in triple)) for triple in triples}) == 20
    for triple in triples:
        of_all = [stairs.chance(one) for one in triple]
        assert [len(stairs.levels(one)) - 1 for one in of_all] == [0, 1, 2]
        assert [stairs.staircase(one) for one in of_all] == pytest.approx([triple[0].signal] * 3)
        assert len({one.shape for one in of_all}) == 1
        first = [sum(signal(one, v, ()) > 1e-9 for v in range(5)) for one in of_all]
        assert first[0] == 5 and first[1] == first[2] < 5
        for one in of_all:
            odd = np.arange(one.shape[1]) % 2 == 1
            assert one.min() >= 0 and one[:, odd].sum(1) == pytest.approx(PARITY) and one.sum(1) == pytest.approx(1)


def test_the_product_with_parity_is_a_shorter_way(stairs):
    """3 and 4 are hidden by the pairs alone; with the parity, the labels show the product of 1, 2 and 4 too."""
    chain = stairs.Settings(products=(((0,), (1,), (2,), (0, 3), (3, 4)),))
    assert stairs.levels(stairs.chance(chain)) == [3, 2]


SMALL = {"d": 12, "m": 40, "batch": 100, "steps": 600, "rate": 1.0, "signal": 0.1, "seeds": 2}


def test_networks_learn_parity_and_stop_and_arms_of_a_seed_share_their_samples(stairs):
    arms = [stairs.Settings(name=name, **SMALL) for name in ("one", "the same")]
    arms.append(stairs.Settings(name="none", **SMALL | {"signal": 1e-9, "steps": 200}))
    table = engine.run_table(stairs, arms, "cpu")
    found = stairs.times(table).unstack()
    assert (found.loc["one"] < 600).all() and (found.loc["one"] == found.loc["the same"]).all()
    assert found.loc["none"].tolist() == [200, 200]
    assert (stairs.times(table, "seen").unstack().loc["one"] < found.loc["one"]).all()
    last = table[(table["setting"] == "one") & (table["event"] == "end")]
    assert (last["test_acc"] >= 90).all() and last["outcome"].str.startswith("stopped").all()


def test_times_are_restricted_to_the_last_step_and_ratios_are_geometric(stairs):
    known = {"condition": "small start", "steps": 100}
    rows = [
        {"setting": f"{triple}, {n}", "seed": seed, "event": event, "step": step, "triple": triple, "stairs": n} | known
        for triple, by_stairs in enumerate(((10, 40), (20, 20)))
        for n, step in enumerate(by_stairs)
        for seed, event in ((0, "end"), (1, "diverged"))
    ]
    found = stairs.restricted(pd.DataFrame(rows), "small start", "parity")
    assert found.to_numpy().tolist() == [[55, 70], [60, 60]]
    middle, low, high = stairs.ratio(found, 1, 0).values()
    assert middle == pytest.approx((70 / 55) ** 0.5) and low == 1 and high == pytest.approx(70 / 55)


# ---------------------------------------------------------------- one bit


@pytest.mark.parametrize(("bit", "labels", "least"), [("none", 2, 0), ("one", 4, 0), ("majority", 4, 20 / 64 / 2)])
def test_labels_tell_the_parity_and_one_bit(one_bit, bit, labels, least):
    found = one_bit.chance(Trial(one_bit.Settings(bit=bit, k=7), 0))
    ones = np.array([bin(i).count("1") for i in range(128)])
    assert found.shape == (128, labels) and (found.argmax(1) % 2 == ones % 2).all()
    assert one_bit.correlation(found) == pytest.approx(least, abs=1e-12)


def test_a_random_bit_is_balanced_and_of_its_seed(one_bit):
    one, again, other = (one_bit.chance(Trial(one_bit.Settings(bit="random", k=7), seed)) for seed in (0, 0, 1))
    assert (one == again).all() and (one != other).any() and one[:, 2:].sum() == 64
    assert 0 < one_bit.correlation(one) < 20 / 64 / 2


def test_growth_is_that_of_doublings_and_of_powers(one_bit):
    k = np.array([5, 7, 9, 11])
    seeds = np.array([[0, 1], [0, 0]])
    doubling = pd.DataFrame({0: 2.0**k, 1: 2.0**k}, index=k)
    cubes = pd.DataFrame({0: k**3.0, 1: 4 * k**3.0}, index=k)
    assert one_bit.slope(doubling, seeds) == pytest.approx([1, 1])
    assert one_bit.slope(cubes, seeds, power=True) == pytest.approx([3, 3])
