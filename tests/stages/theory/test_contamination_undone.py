"""The study contamination_undone: methods, estimates against what is derived, the ends of the law, bad settings."""

from pathlib import Path

import numpy as np
import pytest

from granularity.base import extensions
from granularity.stages.theory import engine
from granularity.stages.theory.runs import at
from support.worlds import generator

FILE = Path(__file__).parents[3] / "studies/contamination_undone/contamination_undone.py"
SMALL = {"d": 64, "d_core": 16, "d_bg": 16, "m": 32, "batch": 64, "steps": 60, "seeds": 2}


@pytest.fixture
def world(monkeypatch):
    extensions.load([FILE])
    found = extensions.find("world", "contamination_undone")
    monkeypatch.setattr(found.measures, "SAMPLES", 400)
    yield found
    extensions.load([])


def test_every_method_runs_and_what_is_projected_does_not_grow(world, tmp_path):
    methods = ("none", "gradients", "inputs", "test", "rescaled", "coral")
    arms = [world.Settings(**SMALL, name=one, method=one, subspace="true", penalty=3, decay=0) for one in methods]
    arms.append(world.Settings(**SMALL, name="means, d = 2", method="gradients", subspace="means", blocks=2))
    table = engine.run_table(world, arms, "cpu")
    assert np.isfinite(table["ood_risk"]).all()
    bg = {name: at(table, name, "bg_sum") for name in methods}
    assert (bg["none"] > bg["coral"]).all() and (bg["none"] > bg["gradients"] + 0.1).all()
    assert bg["inputs"] == pytest.approx([0, 0], abs=1e-5) and bg["test"] == pytest.approx([0, 0], abs=1e-5)
    assert at(table, "test", "core_sum") == pytest.approx(at(table, "none", "core_sum"))
    assert at(table, "rescaled", "id_margin") == pytest.approx(at(table, "none", "id_margin"), rel=0.1)
    claims = world.judge(table)
    assert {one.verdict for one in claims} == {"not tested"} and len(claims) == len(world.SAID["predictions"])
    world.figures(table, tmp_path)
    assert (tmp_path / "contamination_undone.svg").is_file()


def test_the_overlap_and_the_rank_of_estimates_are_those_derived(world):
    def found(seed, **more):
        cfg = world.Settings(**SMALL | more)
        stream = generator(seed)
        x, other, group, imbalance = world.inputs(cfg, stream)
        v = world.directions(cfg, x, other, group, stream)
        assert v.T @ v == pytest.approx(np.eye(v.shape[1]), abs=1e-5)
        return v, 1 - v[16:].sum(0).square().sum().item() / 16, imbalance

    overlaps = [found(seed, unlabelled=40)[1] for seed in range(200)]
    assert np.mean(overlaps) == pytest.approx(world.overlap_law(40, 16, 16), rel=0.15)
    assert found(0, unlabelled=40, subspace="true")[1] == pytest.approx(0, abs=1e-6)
    plain, whitened = (found(0, unlabelled=4000, plus=0.8, subspace=one) for one in ("mean", "whitened"))
    assert plain[2] == pytest.approx(-0.3, abs=0.03) and whitened[1] < 0.01 < plain[2] ** 2 / 1.2 < plain[1]
    assert [found(0, subspace="means", blocks=d)[0].shape[1] for d in (1, 2, 4)] == [1, 2, 4]
    assert [found(0, subspace="moments", blocks=d)[0].shape[1] for d in (1, 4)] == [0, 4]
