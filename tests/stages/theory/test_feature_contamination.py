"""World 4: data, gradients and updates against autograd and a float64 NumPy reference, exact properties."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

from granularity.stages.theory import engine, nets
from granularity.stages.theory.worlds import feature_contamination
from granularity.stages.theory.worlds.feature_contamination import measures, model
from granularity.stages.theory.worlds.feature_contamination.settings import Settings
from support.worlds import generator

SMALL = {"d": 24, "d_core": 8, "d_bg": 6, "m": 16, "batch": 20, "seeds": 1}
FRAMEWORK = {"coordinates": "full", "init": "framework"}
SHELLS = {"task": "shells", **FRAMEWORK, "optimiser": "adamw", "lr": 0.01}
REGRESSION = {"task": "regression", "lr": 0.01, "momentum": 0.9}
FINE = {"task": "granularity", "subclasses": 4, "g": 4}
ARMS = {
    "classification": {},
    "full": {"coordinates": "full", "momentum": 0.5, "lr": 0.2},
    "projected": {"coordinates": "full", "project": True, "bg_low": -0.25},
    "script": {**FRAMEWORK, "momentum": 0.9, "lr": 0.05, "data": "fixed"},
    "identity": {"activation": "identity"},
    "leaky": {"activation": "leaky_relu"},
    "regression": REGRESSION,
    "shells": {**SHELLS, "activation": "gelu"},
    "sigmoid": {**SHELLS, "activation": "sigmoid"},
    "tanh": {**SHELLS, "activation": "tanh"},
    "granularity": FINE,
    "cross-entropy": {**FINE, "objective": "softmax"},
}


@pytest.fixture(autouse=True)
def few_test_samples(monkeypatch):
    monkeypatch.setattr(measures, "SAMPLES", 400)


def table_of(*settings):
    return engine.run_table(feature_contamination, settings, "cpu")


# ---------------------------------------------------------------- data


def test_core_carries_the_class_and_the_background_does_not():
    cfg = Settings()
    found = model.draw_samples(cfg, 20000, generator())
    core, bg, y = found["z"][:, :32], found["z"][:, 32:], found["y"].unsqueeze(1)
    assert (core * y >= 0).all() and (core * y <= 1).all() and (bg >= 0).all() and (bg <= 1).all()
    assert (core * y).mean().item() == pytest.approx(0.5, abs=0.005) and y.mean().abs() < 0.03
    corr = torch.corrcoef(torch.cat((bg, y), 1).T)[-1, :-1]
    assert corr.abs().max() < 4 / math.sqrt(20000)


def test_shells_have_two_radii_and_fixed_sets_equal_classes():
    found = model.draw_samples(Settings(**SHELLS), 100, generator(), balanced=True)
    radius = found["z"][:, :32].norm(dim=1)
    torch.testing.assert_close(radius, torch.where(found["y"] > 0, 1.0, 2.0))
    assert found["y"].sum() == 0


@pytest.mark.parametrize("target", ["z", "z_given_yz", "yz"])
def test_regression_targets(target):
    found = model.draw_samples(Settings(task="regression", target=target), 50, generator())
    core, y = found["z"][:, :32], found["y"].unsqueeze(1)
    signed = target != "z"
    assert torch.equal(found["target"], core if target in ("z", "yz") else core * y)
    assert ((core < 0).any() == signed) and ((found["target"] < 0).any() == (target == "yz"))


@pytest.mark.parametrize("labels", ["class", "random", "background"])
def test_labels_refine_the_classes(labels):
    cfg = Settings(**FINE, labels=labels)
    found = model.draw_samples(cfg, 4000, generator(), generator(1))
    label, y, c = found["label"], found["y"], found["subclass"]
    assert torch.equal(label // 4 == 0, y > 0)
    shows = found["z"][:, 16:32].view(-1, 4, 4).abs().sum(2) > 0
    assert torch.equal(shows, c.unsqueeze(1) == torch.arange(4))
    assert ((label % 4 == c).float().mean() == 1) == (labels == "class")
    assert np.allclose(torch.bincount(label, minlength=8) / 4000, 1 / 8, atol=0.03)


# ---------------------------------------------------------------- gradients and updates


def double(state):
    return {name: value.double() for name, value in state.items()}


PHI = {"relu": torch.relu, "gelu": functional.gelu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}
PHI |= {"leaky_relu": partial(functional.leaky_relu, negative_slope=0.1)}


def loss_of(cfg, f, batch):
    if cfg.task == "regression":
        return ((f - batch["target"]) ** 2).sum(1).mean()
    if cfg.objective == "softmax":
        return functional.cross_entropy(f, batch["label"])
    if cfg.task == "granularity":
        label = batch["label"].unsqueeze(1)
        rival = f.scatter(1, label, -math.inf).amax(1)
        return (1 - f.gather(1, label).squeeze(1) + rival).relu().mean()
    yh = batch["y"] * f.squeeze(1)
    return (functional.softplus(-yh) if cfg.task == "shells" else (1 - yh).relu()).mean()


def reference(cfg, steps):
    """Autograd and torch's optimisers, in float64, on inputs in all of R^d; fed with the run's own draws."""
    runs = [engine.Trial(cfg, 0)]
    net = {k: v[0].double() for k, v in model.initial(runs, torch.device("cpu")).items()}
    net |= {k: net[k].requires_grad_() for k in cfg.trained}
    M, draw = net.get("M", torch.eye(cfg.d0, dtype=torch.float64)), model.batches(runs, torch.device("cpu"))
    adam, how = cfg.optimiser == "adamw", {"lr": cfg.lr, "weight_decay": cfg.decay}
    leaves = [net[k] for k in cfg.trained]
    optimiser = torch.optim.AdamW(leaves, **how) if adam else torch.optim.SGD(leaves, **how, momentum=cfg.momentum)
    losses = []
    for _ in range(steps + 1):
        batch = {k: v[0].double() if v.is_floating_point() else v[0] for k, v in draw().items()}
        u = batch["z"] @ M @ net["w"].T + net.get("b", 0)
        loss = loss_of(cfg, PHI.get(cfg.activation, torch.clone)(u) @ net["a"].T + net.get("c", 0), batch)
        optimiser.zero_grad()
        loss.backward()
        losses.append(loss.item())
        last = (net["w"] @ M.T).detach().numpy()
        if cfg.project:
            net["w"].grad = net["w"].grad @ M[: cfg.d_core].T @ M[: cfg.d_core]
        optimiser.step()
    return losses, last


@pytest.mark.parametrize("arm", ARMS)
def test_training_follows_the_float64_reference(arm):
    cfg = Settings(**SMALL | ARMS[arm], steps=10)
    losses, projections = reference(cfg, 10)
    table = table_of(cfg)
    np.testing.assert_allclose(table["loss"], [losses[t] for t in table["step"]], rtol=2e-4)
    end = table.iloc[-1]
    core, bg = projections[:, :8], projections[:, 8:]
    assert end["core_norm"] == pytest.approx(np.linalg.norm(core, axis=1).mean(), rel=2e-4)
    assert end["bg_norm"] == pytest.approx(np.linalg.norm(bg, axis=1).mean(), rel=2e-4)
    assert end["bg_sum"] == pytest.approx(0.5 * bg.sum(1).mean(), rel=2e-3, abs=1e-5)


# ---------------------------------------------------------------- exact properties


def test_reduced_coordinates_train_as_full_ones_do():
    """The same projections at the start give the same risks: the rest of the weights never enters."""
    cfg = Settings(**SMALL)
    run = engine.Trial(cfg, 0)
    draws = [model.batches([run], torch.device("cpu")) for _ in range(2)]
    M = nets.orthonormal(cfg.d0, cfg.d, generator(), torch.float64).unsqueeze(0)
    reduced = double(model.initial([run], torch.device("cpu")))
    rest = torch.randn(1, cfg.m, cfg.d, generator=generator(), dtype=torch.float64)
    w = reduced["w"] @ M + rest - rest @ M.transpose(1, 2) @ M
    states = [reduced, {"w": w, "a": reduced["a"], "M": M}]
    update = model.updater(cfg, [run], torch.device("cpu"))
    for t in range(30):
        losses = []
        for i, draw in enumerate(draws):
            batch = {name: value.double() for name, value in draw().items()}
            loss, minus = model.descent(cfg, states[i], batch)
            states[i] = states[i] | update(states[i], minus, t)
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)  # lr and decay are float32


def test_coarse_labels_are_the_papers_hinge():
    """g = 1 of task granularity: F_0 - F_1 is h with a_k = +-1/m, its multi-class hinge the hinge."""
    cfg = Settings(**SMALL | FINE | {"g": 1})
    runs = [engine.Trial(cfg, 0)]
    state = model.initial(runs, torch.device("cpu"))
    batch = model.batches(runs, torch.device("cpu"))()
    binary = Settings(**SMALL)
    signed = state | {"a": state["a"][:, :1] - state["a"][:, 1:]}
    torch.testing.assert_close(signed["a"].abs(), torch.full_like(signed["a"], 1 / cfg.m))
    (loss, minus), (wanted, direction) = model.descent(cfg, state, batch), model.descent(binary, signed, batch)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(minus["w"], direction["w"])


def test_measures_are_the_definitions():
    cfg = Settings(**SMALL, steps=1)
    run = engine.Trial(cfg, 0)
    row = table_of(cfg).iloc[0]
    state = model.initial([run], torch.device("cpu"))
    W, a = state["w"][0].numpy(), state["a"][0, 0].numpy()
    drawn = model.draw_samples(cfg, 400, run.generator("evaluation"), run.generator("evaluation labels"))
    z, y = drawn["z"].numpy(), drawn["y"].numpy()
    for test, (scale, shift) in {"id": (1, 0), "ood": (1, -1), "worst": (0, -1)}.items():
        moved = z.copy()
        moved[:, 8:] = scale * z[:, 8:] + shift
        yh = y * (np.maximum(moved @ W.T, 0) @ a)
        assert row[f"{test}_risk"] == pytest.approx(np.maximum(1 - yh, 0).mean(), rel=1e-4)
        assert row[f"{test}_acc"] == pytest.approx((yh > 0).mean(), abs=1e-6)
    u = z @ W.T
    own = [(u[y == np.sign(a[k]), k] > 0).mean() for k in range(cfg.m)]
    assert row["rate_pos"] == pytest.approx(np.mean(own), abs=1e-5)
    assert row["core_sum"] == pytest.approx((np.sign(a) * 0.5 * W[:, :8].sum(1)).mean(), abs=1e-5)


# ---------------------------------------------------------------- runs


def test_conditions_of_the_theorems():
    met = Settings().conditions()
    assert [words for words, here in met.items() if not here] == ["d >= d0^2.01", "d_bg <= d0/ln d0"]
    assert all(Settings(d=5000, d_bg=10).conditions().values())
    other = Settings(activation="tanh", momentum=0.5, data="fixed", bg_low=-0.5, m=300, decay=0.5).conditions()
    assert [words for words, here in other.items() if here] == ["weights N(0, I/d), no biases"]
    assert Settings(task="granularity").conditions() == {}
