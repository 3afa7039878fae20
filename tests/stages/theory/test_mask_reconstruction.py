"""Mask reconstruction: identities, the updates against a float64 NumPy reference, data that leak, settings."""

import numpy as np
import pytest
import torch

from granularity.claims import claim
from granularity.stages.theory import engine
from granularity.stages.theory.worlds import mask_reconstruction
from granularity.stages.theory.worlds.mask_reconstruction import claims, identities, model, training
from granularity.stages.theory.worlds.mask_reconstruction.settings import EXACT, Settings, literal_rho
from support.worlds import generator

SMALL = {"k": 4, "d": 16, "m": 3, "samples": 60, "test_samples": 80, "batch": 20, "distractors": 1.0}
SMALL |= {"pretrain_steps": 6, "finetune_steps": 6, "seeds": 1, "early_stop": False, "granularity": 4}


def table_of(*settings):
    return engine.run_table(mask_reconstruction, settings, "cpu")


# ---------------------------------------------------------------- identities (A1 to A8)


def test_identities_hold():
    found = [
        one for one in claims.judge(table_of(Settings(name=EXACT, task="identities", seeds=1))) if one.id[0] == "A"
    ]
    assert {one.id for one in found} == {f"A{i}" for i in range(1, 9)}
    assert {one.verdict for one in found} == {claim.HOLDS, claim.REPORTED}


# ---------------------------------------------------------------- training against autograd in float64


def reference(cfg):
    """Losses of mask reconstruction, then fine-tuning, by autograd in float64; fed with the run's own draws."""
    run = engine.Trial(cfg, 0)
    drawn = model.draw_samples(cfg, cfg.samples, run.generator("data"))
    w = cfg.sigma_0 * torch.randn(cfg.kernels, cfg.d, generator=run.generator("init")).double()
    losses, lost = {"pretrain": [], "finetune": []}, 1 / cfg.theta - 1

    def steps(phase, count, weights, rates, loss_of):
        stream = run.generator(f"{phase} batches")
        for t in range(count + 1):
            chosen = torch.randperm(cfg.samples, generator=stream)[: cfg.batch]
            before = [one.detach().requires_grad_() for one in weights]
            loss = loss_of(t, drawn["x"][chosen].double(), drawn["y"][chosen], *before)
            losses[phase].append(loss.item())
            gradients = torch.autograd.grad(loss, before)
            weights = [one - rate * down for one, rate, down in zip(before, rates, gradients, strict=True)]
        return before

    def masked(t, x, y, w):
        fading = 1 / (t ** (1 / cfg.tau_root) + 1)  # Section 3.2, or with q Assumption B.2
        tau = 1 + cfg.kappa * (1 - cfg.theta) / (cfg.copies * cfg.theta) + cfg.tau_extra * fading
        z = torch.einsum("npd,rd->npr", x, w)
        h, target = (identities.activated(one, cfg.q, cfg.width) for one in (z, tau * z.detach()))
        return (((target - h).sum(1) ** 2).sum(1) + lost * (h**2).sum((1, 2))).mean() / 2

    def tuned(t, x, y, w, u):
        h = identities.activated(torch.einsum("npd,rd->npr", x, w), cfg.q, cfg.width)
        return torch.nn.functional.cross_entropy(h.sum(1) @ u.T, y)

    (w,) = steps("pretrain", cfg.pretrain_steps, [w], [cfg.eta], masked)
    head = torch.zeros(cfg.k, cfg.kernels, dtype=torch.float64)
    steps("finetune", cfg.finetune_steps, [w, head], [cfg.eta_1, cfg.eta_2], tuned)
    return losses


@pytest.mark.parametrize(("copies", "tau_root"), [(1, 1), (2, 8)])
def test_training_follows_the_float64_reference(copies, tau_root, monkeypatch):
    monkeypatch.setattr(training, "RECORDED", range(10))
    monkeypatch.setattr(training, "RECORDED_SUPERVISED", range(10))
    fast = {"sigma_0": 0.2, "eta_2": 20.0, "eta_1": 0.5, "copies": copies, "tau_root": tau_root}
    cfg = Settings(**SMALL, **fast)
    table = table_of(cfg)
    for phase, losses in reference(cfg).items():
        rows = table[table["phase"] == phase]
        np.testing.assert_allclose(rows["loss"], losses, rtol=1e-5)
        assert abs(losses[-1] / losses[0] - 1) > 0.01


def test_the_moving_average_teacher_gives_no_growth_at_the_start():
    cfg = Settings(**SMALL)
    x = model.draw_samples(cfg, 20, generator())["x"].double()[None]
    w = 0.08 * torch.randn(1, 12, 16, generator=generator(1), dtype=torch.float64)
    ones = torch.ones(1, dtype=torch.float64)
    same = model.masked(x, w, 0.5 * ones, 8, 0.28, ones, teacher=w)[1]
    assert ((same * w).sum((1, 2)) < 0).all()  # teacher = student: only the pull towards zero is left
    scaled, given = (model.masked(x, w, 0.5 * ones, 8, 0.28, 1.3 * ones, teacher=t)[1] for t in (None, 1.3 * w))
    assert torch.allclose(scaled, given, rtol=1e-10)


# ---------------------------------------------------------------- labels, measures


def test_labels_of_every_granularity():
    y, strength = torch.tensor([0, 1, 2, 3]), torch.tensor([[1.2, 1.1], [1.0, 1.3], [1.3, 0.1], [0.1, 1]])

    def labels(**what):
        cfg = Settings(**{**SMALL, "pretrain": "labels", **what})
        return model.pretraining_labels(cfg, y, strength, generator()).tolist()

    assert labels(granularity=2) == [0, 0, 1, 1] and labels(granularity=4) == [0, 1, 2, 3]
    assert labels(labels="view", granularity=8) == [0, 3, 4, 7]
    assert [label // 2 for label in labels(labels="random", granularity=8)] == [0, 1, 2, 3]


def test_views_are_counted_where_only_they_are_strong():
    """A hand-made classifier that knows view 0 of every class and nothing else."""
    cfg = Settings(**{**SMALL, "m": 1, "noise": 0.0, "gamma": 0.0, "distractors": 3, "test_samples": 400})
    known = training.Training([engine.Trial(cfg, 0)], torch.device("cpu"))
    w = torch.zeros(1, 4, 16)
    w[0, range(4), range(0, 8, 2)] = 1.0
    found = known.classifier(w, torch.eye(4)[None], known.data["y"], True)
    assert found["multi_accuracy"].item() == 1 and found["views_per_class"].item() == 1
    assert found["two_valued"].item() == 1 and found["lost_views"].item() == 4
    assert all(found[f"view_accuracy_{i}_0"].item() == 1 for i in range(4))
    kernels = known.kernels(w)
    assert kernels["captured"].item() == 4 and kernels["pure_winners"].item() == 8
    assert kernels["fused"].item() == 0 and kernels["kernels_above"].item() == 4


# ---------------------------------------------------------------- runs


def test_capture_stops_mask_reconstruction():
    fast = {"sigma_0": 0.25, "pretrain_steps": 400, "early_stop": True, "finetune_steps": 0}
    table = table_of(Settings(**{**SMALL, **fast, "m": 10, "kappa": 1.0}))
    last = table.iloc[-1]
    assert last["event"] == "captured end" and last["captured"] == 8 and last["lambda_min"] >= 1
    assert last["outcome"] == f"stopped at step {last['step']}" and last["step"] < 400


def test_no_runnable_setting_meets_the_papers_assumptions():
    for settings in mask_reconstruction.SIZES.values():
        for item in settings:
            assert not all(item.conditions().values())
            assert sum(item.conditions().values()) <= 7 and len(item.conditions()) == 11
    assert literal_rho(10) == pytest.approx(0.977, abs=1e-3)
