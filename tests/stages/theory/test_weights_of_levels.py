"""The study weights_of_levels: the mixed loss, the law against runs at a small size, bad settings."""

from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.base import extensions
from granularity.stages.theory import engine
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds import label_granularity
from support.worlds import generator

FILE = Path(__file__).parents[3] / "studies/weights_of_levels/weights_of_levels.py"
SMALL = {"d": 16, "k": 4, "g": 4, "per_subclass": 2, "seeds": 2}
EARLY = SMALL | {"steps": 8, "eta": 5e-4, "sigma_0": 1e-5, "equal_counts": True}


@pytest.fixture
def world():
    extensions.load([FILE])
    yield extensions.find("world", "weights_of_levels")
    extensions.load([])


def test_the_loss_and_its_gradient_are_those_of_two_softmaxes(world):
    F = torch.randn(3, 5, 8, generator=generator(0), requires_grad=True)
    y, weight = torch.tensor([0, 3, 4, 7, 5]).expand(3, 5), torch.tensor([0.0, 0.3, 1.0])
    value, residual = world.mixed(weight)(F.detach(), y)
    ce = torch.nn.functional.cross_entropy
    for w, responses, labels, mine, minus in zip(weight, F, y, value, residual, strict=True):
        summed = torch.stack((responses[:, :4].sum(1), responses[:, 4:].sum(1)), 1)
        loss = (1 - w) * ce(summed, labels // 4) + w * ce(responses, labels)
        assert mine.item() == pytest.approx(loss.item(), rel=1e-5)
        (slope,) = torch.autograd.grad(loss, F)
        torch.testing.assert_close(slope.sum(0), -minus / 5)


def test_a_weight_of_one_is_the_world_of_fine_labels(world, monkeypatch):
    mine = world.Settings(**SMALL, name="fine", steps=5)
    monkeypatch.setattr(label_granularity.Settings, "WORLD", mine.WORLD)  # so that both draw the same numbers
    theirs = label_granularity.Settings(**SMALL, name="fine", steps=5)
    tables = [engine.run_table(one, [cfg], "cpu") for one, cfg in ((world, mine), (label_granularity, theirs))]
    for name in ("loss", "hard_own", "normal_label"):
        assert np.array_equal(at(tables[0], "fine", name), at(tables[1], "fine", name))


def test_features_grow_as_derived(world):
    weights = (0, 0.7, 0.9)
    table = engine.run_table(world, [world.Settings(**EARLY, name=str(w), weight=w) for w in weights], "cpu")
    for w in weights:
        own, common = (at(table, str(w), f"rise_{name}_weight").mean() for name in ("subclass", "common"))
        assert (own, common) == pytest.approx((1 + 0.75 * w, 1 - 0.75 * w), rel=0.1)
    sibling = [at(table, str(w), "rise_hard_label_sibling").mean() for w in weights]
    assert sibling[0] > sibling[1] > 0 > sibling[2]  # it ends at k / (k + 1) = 0.8
    assert {claim.verdict for claim in world.judge(table)} == {"not tested"}
