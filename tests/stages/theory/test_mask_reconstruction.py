"""Mask reconstruction: identities, the updates against a float64 NumPy reference, data that leak, settings."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.claims import claim
from granularity.stages.theory import engine, nets, simulation
from granularity.stages.theory.worlds import mask_reconstruction
from granularity.stages.theory.worlds.mask_reconstruction import claims, identities, model
from granularity.stages.theory.worlds.mask_reconstruction.arms import BLOCK, EXACT, JOINT
from granularity.stages.theory.worlds.mask_reconstruction.settings import Settings
from support.worlds import assert_rows_name_their_arms, judge, train

SMALL = {"k": 4, "d": 16, "m": 3, "samples": 60, "test_samples": 80, "batch": 20, "distractors": 1.0}
SMALL |= {"pretrain_steps": 6, "finetune_steps": 6, "seeds": 1, "early_stop": False, "granularity": 4}


def table_of(*settings):
    return engine.run_table(mask_reconstruction, settings, "cpu")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- identities (A1 to A8)


@pytest.fixture(scope="module")
def exact():
    return claims.judge(table_of(Settings(name=EXACT, task="identities", seeds=1)))


@pytest.mark.parametrize("id", [f"A{i}" for i in range(1, 9)])
def test_identities_hold(exact, id):
    found = [check for check in exact if check.id == id]
    assert found
    for check in found:
        assert check.verdict in (claim.HOLDS, claim.REPORTED), (check.quantity, check.values)


@pytest.mark.parametrize("name", ["MAIN", "DISTRACTOR", "WEAK"])
def test_a_leaking_range_is_seen(name, monkeypatch):
    wanted = {key: getattr(model, key) for key in ("MAIN", "DISTRACTOR", "WEAK")}
    leaked = 1.6 if name == "WEAK" else (wanted[name][0], wanted[name][1] + 0.02)
    draw = model.draw_samples

    def leaking(*args, **kwargs):
        monkeypatch.setattr(model, name, leaked)
        drawn = draw(*args, **kwargs)
        monkeypatch.setattr(model, name, wanted[name])
        return drawn

    monkeypatch.setattr(model, "draw_samples", leaking)
    monkeypatch.setattr(identities, "DRAWN", 4000)
    assert identities.data(Settings(), generator())["data_violations"] > 0


@pytest.mark.parametrize("copies", [1, 2])
def test_closed_form_with_copies_and_theta(copies):
    cfg = Settings(**{**SMALL, "copies": copies, "patches": 6}, q=4, width=0.5, sigma_0=0.3)
    x = model.draw_samples(cfg, 5, generator())["x"].double()
    w = 0.3 * torch.randn(7, 16, generator=generator(1), dtype=torch.float64)
    for theta in (0.25, 0.8):
        ones = torch.ones(1, dtype=torch.float64)
        loss, _ = model.masked(x[None], w[None], theta * ones, 4, 0.5, 1.4 * ones)
        wanted = identities.averaged_loss(x, w, 1.4 * w, theta, 4, 0.5)
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-12)


def test_activation_is_the_shared_one():
    z = torch.linspace(-1, 2, 301, dtype=torch.float64)
    for q in (3, 4, 8):
        value, slope = model.smoothed(z, q, 0.28)
        phi = nets.smoothed_relu(q, 0.28)
        assert torch.allclose(value, phi.value(z), atol=1e-15) and torch.allclose(slope, phi.slope(z), atol=1e-15)


def test_fine_tuning_is_the_gradient_of_cross_entropy():
    cfg = Settings(**SMALL)
    drawn = model.draw_samples(cfg, 9, generator())
    x, y = drawn["x"].double()[None], drawn["y"][None]
    w = (0.5 * torch.randn(1, 12, 16, generator=generator(1), dtype=torch.float64)).requires_grad_()
    u = torch.randn(1, 4, 12, generator=generator(2), dtype=torch.float64, requires_grad=True)
    phi = nets.smoothed_relu(8, 0.28)
    F = phi.value(torch.einsum("brd,bnpd->bnpr", w, x)).sum(2) @ u.transpose(1, 2)
    wanted = torch.nn.functional.cross_entropy(F[0], y[0])
    gradients = torch.autograd.grad(wanted, (w, u))
    with torch.no_grad():
        loss, dw, du = model.tuned(x, y, w, u, 8, 0.28)
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-12)
    assert torch.allclose(dw, -gradients[0], atol=1e-13) and torch.allclose(du, -gradients[1], atol=1e-13)


# ---------------------------------------------------------------- training against float64 NumPy


def phi_numpy(z, q, a):
    t = np.clip(z / a, 0, 1)
    return np.where(z > a, z - (1 - 1 / q) * a, a * t**q / q), t ** (q - 1)


def reference(cfg):
    """Mask reconstruction, then fine-tuning, literally, in float64; fed with the run's own draws."""
    run = engine.Trial(cfg, 0)
    drawn = model.draw_samples(cfg, cfg.samples, run.generator("data"))
    X, Y = drawn["x"].numpy().astype(float), drawn["y"].numpy()
    w = cfg.sigma_0 * torch.randn(cfg.kernels, cfg.d, generator=run.generator("init")).numpy().astype(float)
    losses = {"pretrain": [], "finetune": []}
    stream = run.generator("pretrain batches")
    for t in range(cfg.pretrain_steps + 1):
        x = X[torch.randperm(cfg.samples, generator=stream)[: cfg.batch].numpy()]
        tau = 1 + cfg.kappa * (1 - cfg.theta) / (cfg.copies * cfg.theta) + cfg.tau_extra / (t + 1)
        z = np.einsum("npd,rd->npr", x, w)
        (h, slope), (target, _) = phi_numpy(z, cfg.q, cfg.width), phi_numpy(tau * z, cfg.q, cfg.width)
        gap, lost = target.sum(1) - h.sum(1), 1 / cfg.theta - 1
        losses["pretrain"].append(((gap**2).sum(1) + lost * (h**2).sum((1, 2))).mean() / 2)
        before = w
        pull = (gap[:, None] - lost * h) * slope
        w = w + cfg.eta * np.einsum("npr,npd->rd", pull, x) / len(x)
    w, u = before, np.zeros((cfg.k, cfg.kernels))
    stream = run.generator("finetune batches")
    for _ in range(cfg.finetune_steps + 1):
        chosen = torch.randperm(cfg.samples, generator=stream)[: cfg.batch].numpy()
        x, y = X[chosen], Y[chosen]
        h, slope = phi_numpy(np.einsum("npd,rd->npr", x, w), cfg.q, cfg.width)
        F = h.sum(1) @ u.T
        p = np.exp(F - F.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses["finetune"].append(-np.log(p[np.arange(len(y)), y]).mean())
        residual = np.eye(cfg.k)[y] - p
        dw = np.einsum("nr,npr,npd->rd", residual @ u, slope, x) / len(x)
        u, w = u + cfg.eta_2 * residual.T @ h.sum(1) / len(x), w + cfg.eta_1 * dw
    return losses


@pytest.mark.parametrize("copies", [1, 2])
def test_training_follows_the_float64_reference(copies, monkeypatch):
    monkeypatch.setattr(model, "RECORDED", range(10))
    monkeypatch.setattr(model, "RECORDED_SUPERVISED", range(10))
    fast = {"sigma_0": 0.2, "eta_2": 20.0, "eta_1": 0.5, "copies": copies}
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


def test_the_teachers_lead_can_be_had_without_masks():
    assert Settings(kappa=0.3, theta=0.25, copies=2).lead == pytest.approx(0.3 * 0.75 / 0.5)
    assert Settings(kappa=0.3, theta=1.0, gain=0.2).lead == 0.2 and Settings(kappa=0.3, theta=1.0).lead == 0
    fast = {**SMALL, "finetune_steps": 0, "theta": 1.0, "tau_extra": 0.0, "sigma_0": 0.2, "pretrain_steps": 30}
    still, led = (table_of(Settings(**fast, gain=gain))["lambda_median"] for gain in (0.0, 0.3))
    assert np.ptp(still) == 0 and led.iloc[-1] > led.iloc[0]


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
    training = model.Training([engine.Trial(cfg, 0)], torch.device("cpu"))
    w = torch.zeros(1, 4, 16)
    w[0, range(4), range(0, 8, 2)] = 1.0
    found = training.evaluation.classifier(w, torch.eye(4)[None], training.data["y"], True)
    assert found["multi_accuracy"].item() == 1 and found["views_per_class"].item() == 1
    assert found["two_valued"].item() == 1 and found["lost_views"].item() == 4
    assert all(found[f"view_accuracy_{i}_0"].item() == 1 for i in range(4))
    kernels = training.evaluation.kernels(w)
    assert kernels["captured"].item() == 4 and kernels["pure_winners"].item() == 8
    assert kernels["fused"].item() == 0 and kernels["kernels_above"].item() == 4


# ---------------------------------------------------------------- runs


def test_capture_stops_mask_reconstruction():
    fast = {"sigma_0": 0.25, "pretrain_steps": 400, "early_stop": True, "finetune_steps": 0}
    table = table_of(Settings(**{**SMALL, **fast, "m": 10, "kappa": 1.0}))
    last = table.iloc[-1]
    assert last["event"] == "captured end" and last["captured"] == 8 and last["lambda_min"] >= 1
    assert last["outcome"] == f"stopped at step {last['step']}" and last["step"] < 400


def test_a_run_is_the_same_alone_and_in_any_batch(monkeypatch):
    arms = [Settings(**{**SMALL, "seeds": 2}, name="a", probe_steps=3, few=20)]
    arms += [Settings(**{**SMALL, "seeds": 2}, name="b", mu=0.5, kappa=1.0, probe_steps=3, few=20)]
    monkeypatch.setattr(engine, "CPU_WORK", 1)
    assert len(engine.groups(arms, torch.device("cpu"))) == 4
    alone = table_of(*arms)
    monkeypatch.setattr(engine, "CPU_WORK", 1e12)
    assert len(engine.groups(arms, torch.device("cpu"))) == 1
    pd.testing.assert_frame_equal(alone, table_of(*arms), rtol=1e-4, atol=1e-6)


def test_one_seed_gives_the_same_bytes():
    cfg = Settings(**{**SMALL, "seeds": 2})
    pd.testing.assert_frame_equal(table_of(cfg), table_of(cfg), check_exact=True)


def test_a_diverging_run_says_when():
    table = table_of(Settings(**{**SMALL, "finetune_steps": 0, "eta": 1e38, "sigma_0": 1.0}))
    assert table["event"].iloc[-1] == "diverged" and "diverged at step" in table["outcome"].iloc[-1]


def test_a_diverged_arm_fails_its_claims():
    arm = {**SMALL, "pretrain": "none", "sigma_0": 1.0}
    arms = [Settings(**arm, name=JOINT, eta_2=1e38), Settings(**arm, name=BLOCK)]
    found = mask_reconstruction.judge(table_of(*arms))
    (single,) = (c for c in found if c.id == "B3" and c.quantity == f"{JOINT}: single-view accuracy")
    assert math.isnan(single.values[0]) and single.verdict == claim.FAILS


def test_no_runnable_setting_meets_the_papers_assumptions():
    for settings in mask_reconstruction.SIZES.values():
        for item in settings:
            assert not all(item.conditions().values())
            assert sum(item.conditions().values()) <= 7 and len(item.conditions()) == 11
    assert model.literal_rho(10) == pytest.approx(0.977, abs=1e-3)


@pytest.mark.parametrize(
    ("over", "words", "met"),
    [
        ({"m": 2}, "m >= log k (the paper: polylog k)", False),  # log 10 = 2.3
        ({"m": 3}, "m >= log k (the paper: polylog k)", True),
        ({"eta": 0.1}, "eta <= 1/k (the paper: 1/poly(k))", True),
        ({"eta": 0.11}, "eta <= 1/k (the paper: 1/poly(k))", False),
        ({"eta": 1e-47}, "eta >= k^(-q(q-2))", True),  # q = 8
        ({"eta": 1e-49}, "eta >= k^(-q(q-2))", False),
    ],
)
def test_bounds_on_the_number_of_kernels_and_on_the_step(over, words, met):
    assert Settings(**over).conditions()[words] is met


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"k": "40"}, "k: 2k <= d must hold, but k = 40 needs d >= 80, not 64"),
        ({"copies": "8"}, r"patches: a class's two semantics need 2 C_p = 16 patches"),
        ({"distractors": "11"}, "distractors: s <= k = 10 must hold"),
        ({"few": "2000"}, "few: at most all 1000 samples"),
        ({"pretrain": "labels", "granularity": "3"}, "granularity: must divide k = 10"),
        ({"pretrain": "labels", "labels": "view"}, "granularity: labels 'view' are 2k = 20, not 10"),
        ({"head": "block"}, "head: 'block' is trained from scratch"),
        ({"q": "2"}, "q = 2: input should be greater than or equal to 3"),
        ({"kapa": "1"}, "kapa: unknown key; did you mean 'kappa'"),
    ],
)
def test_bad_settings_are_refused(overrides, message):
    with pytest.raises(GranularityError, match=message):
        simulation.settings_from(mask_reconstruction, overrides)


def test_stage_writes_the_artifact(tmp_path: Path, monkeypatch):
    tiny = {**SMALL, "k": 10, "d": 24, "m": 2, "seeds": 2, "test_samples": 400}
    tiny |= {"pretrain_steps": 4, "finetune_steps": 4}
    arms = [arm for arm in mask_reconstruction.SIZES["quick"] if arm.name != EXACT]
    free = {key: value for key, value in tiny.items() if key not in ("early_stop", "granularity")}
    small = [arm.model_copy(update=free | {"few": 20 * (arm.few > 0)}) for arm in arms]
    small = [arm.model_copy(update={"probe_steps": 4 * (arm.probe_steps > 0)}) for arm in small]
    monkeypatch.setattr(identities, "DRAWN", 2000)
    small.append(Settings(name=EXACT, task="identities", seeds=1))
    monkeypatch.setitem(mask_reconstruction.SIZES, "tiny", small)
    judge("mask_reconstruction", [train("mask_reconstruction", tmp_path / "part")], tmp_path / "one")
    found = pd.read_csv(tmp_path / "one" / "checks.csv")
    assert_rows_name_their_arms(found, "mask_reconstruction")
    assert {"A1", "A8", "B1", "G1", "G2", "G3", "B13", "P1", "P8", "C1", "C5", "R4"} <= set(found["id"])
    assert set(found.loc[found["id"].isin(["B12", "R1"]), "verdict"]) == {claim.NOT_TESTED}
    assert found.loc[found["id"] == "B12", "published"].item() == pytest.approx(1.8)
    assert len(list((tmp_path / "one" / "figures").glob("*.svg"))) == 7


def test_sizes_have_names_of_their_own():
    for settings in mask_reconstruction.SIZES.values():
        assert len({item.name for item in settings}) == len(settings)
