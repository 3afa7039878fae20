"""World 4: data, gradients and updates against autograd and a float64 NumPy reference, exact properties."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.claims import claim
from granularity.stages.theory import engine, nets, simulation
from granularity.stages.theory.worlds import feature_contamination
from granularity.stages.theory.worlds.feature_contamination import measures, model
from granularity.stages.theory.worlds.feature_contamination.arms import LINEAR, RANDOM, RELU
from granularity.stages.theory.worlds.feature_contamination.settings import Settings
from support.worlds import assert_rows_name_their_arms, judge, train

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


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


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


@pytest.mark.parametrize("arm", ARMS)
def test_gradient_is_autograds(arm):
    cfg = Settings(**SMALL | ARMS[arm] | {"project": False})
    runs = [engine.Trial(cfg, seed) for seed in (0, 1)]
    state = double(model.initial(runs, torch.device("cpu")))
    batch = model.batches(runs, torch.device("cpu"))()
    batch = {name: value.double() if value.is_floating_point() else value for name, value in batch.items()}
    loss, minus = model.descent(cfg, state, batch)
    leaves = {name: state[name].clone().requires_grad_() for name in cfg.trained}
    net = state | leaves
    x = batch["z"] @ net["M"] if "M" in net else batch["z"]  # in the input space, without coordinates
    phi = model.ACTIVATIONS[cfg.activation]
    f = nets.two_layer(x, net["w"], net["a"], phi, net.get("b"), net.get("c"))[0]
    wanted, _ = model.residuals(cfg, f, batch)
    torch.testing.assert_close(loss, wanted.detach(), rtol=1e-10, atol=0)
    for name, grad in zip(leaves, torch.autograd.grad(wanted.sum(), list(leaves.values())), strict=True):
        scale = grad.abs().max()
        assert scale > 0 and (minus[name] + grad).abs().max() < 1e-10 * scale, name


def test_gelu_slope_is_its_derivative():
    z = torch.randn(500, generator=generator(), dtype=torch.float64, requires_grad=True)
    (wanted,) = torch.autograd.grad(model.ACTIVATIONS["gelu"].value(z).sum(), z)
    torch.testing.assert_close(model.ACTIVATIONS["gelu"].slope(z.detach()), wanted)


def numpy_phi(name):
    erf = np.vectorize(math.erf)
    return {
        "relu": (lambda u: np.maximum(u, 0), lambda u: (u > 0) * 1.0),
        "identity": (lambda u: u, np.ones_like),
        "gelu": (
            lambda u: u * (1 + erf(u / math.sqrt(2))) / 2,
            lambda u: (1 + erf(u / math.sqrt(2))) / 2 + u * np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi),
        ),
        "sigmoid": (lambda u: 1 / (1 + np.exp(-u)), lambda u: np.exp(-u) / (1 + np.exp(-u)) ** 2),
        "tanh": (np.tanh, lambda u: 1 / np.cosh(u) ** 2),
    }[name]


def reference(cfg, steps):
    """The update literally, in float64 NumPy, on inputs in all of R^d; fed with the run's own draws."""
    run = engine.Trial(cfg, 0)
    p = {k: v[0].double().numpy() for k, v in model.initial([run], torch.device("cpu")).items()}
    M = p.get("M", np.eye(cfg.d0))
    core = M[: cfg.d_core]
    draw = model.batches([run], torch.device("cpu"))
    phi, slope = numpy_phi(cfg.activation)
    first, second = ({k: np.zeros_like(p[k]) for k in cfg.trained} for _ in range(2))
    losses = []
    for t in range(1, steps + 2):
        batch = {k: v[0].double().numpy() for k, v in draw().items()}
        x, n = batch["z"] @ M, cfg.batch
        u = x @ p["w"].T + p.get("b", 0)
        h = phi(u)
        f = h @ p["a"].T + p.get("c", 0)
        if cfg.task == "regression":
            losses.append(((f - batch["target"]) ** 2).sum(1).mean())
            df = 2 * (f - batch["target"]) / n
        elif cfg.objective == "softmax":
            p_label = np.exp(f - f.max(1, keepdims=True))
            p_label /= p_label.sum(1, keepdims=True)
            onehot = np.eye(cfg.outputs)[batch["label"].astype(int)]
            losses.append(-np.log((p_label * onehot).sum(1)).mean())
            df = (p_label - onehot) / n
        elif cfg.task == "granularity":
            label, rows = batch["label"].astype(int), np.arange(n)
            others = f.copy()
            others[rows, label] = -np.inf
            rival = others.argmax(1)
            margin = 1 - f[rows, label] + f[rows, rival]
            losses.append(np.maximum(margin, 0).mean())
            df = np.zeros_like(f)
            df[rows, label] -= (margin > 0) / n
            df[rows, rival] += (margin > 0) / n
        else:
            y = batch["y"][:, None]
            if cfg.task == "shells":
                losses.append(np.log1p(np.exp(-y * f)).mean())
                df = -y / (1 + np.exp(y * f)) / n
            else:
                losses.append(np.maximum(1 - y * f, 0).mean())
                df = -y * (y * f < 1) / n
        du = (df @ p["a"]) * slope(u)
        grad = {"w": du.T @ x, "b": du.sum(0), "a": df.T @ h, "c": df.sum(0)}
        if cfg.project:
            grad["w"] = grad["w"] @ core.T @ core
        last = {k: p[k].copy() for k in cfg.trained}
        for k in cfg.trained:
            if cfg.optimiser == "adamw":
                first[k] = 0.9 * first[k] + 0.1 * grad[k]
                second[k] = 0.999 * second[k] + 0.001 * grad[k] ** 2
                hat = first[k] / (1 - 0.9**t) / (np.sqrt(second[k] / (1 - 0.999**t)) + 1e-8)
                p[k] = p[k] - cfg.lr * cfg.decay * p[k] - cfg.lr * hat
            else:
                first[k] = cfg.momentum * first[k] + grad[k] + cfg.decay * p[k]
                p[k] = p[k] - cfg.lr * first[k]
    return losses, last["w"] @ M.T


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


def test_without_background_gradient_weights_decay_exactly():
    cfg = Settings(**SMALL, project=True, steps=50, lr=0.3, decay=0.01)
    table = table_of(cfg)
    start, end = table["bg_norm"].iloc[0], table["bg_norm"].iloc[-1]
    assert end / start == pytest.approx((1 - 0.3 * 0.01) ** 50, rel=1e-4)


def test_identities_are_measured_and_hold():
    table = table_of(Settings(**SMALL, steps=20), Settings(**SMALL, name="full", coordinates="full", steps=20))
    ends = table[table["step"].isin([0, 20])]
    assert (ends[["gradient_error", "equation_7_error"]] < 1e-5).all(axis=None)
    full = table[table["setting"] == "full"].iloc[0]
    assert full["dictionary_error"] < 1e-5 and full["bg_label_correlation"] < 4


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


@pytest.fixture(scope="module")
def reference_run():
    arms = [arm for arm in feature_contamination.SIZES["quick"] if arm.name in (RELU, LINEAR)]
    return table_of(*[arm.model_copy(update={"seeds": 1, "steps": 400}) for arm in arms])


def test_contamination_at_the_papers_size(reference_run):
    end = {name: rows.iloc[-1] for name, rows in reference_run.groupby("setting")}
    relu, linear = end[RELU], end[LINEAR]
    assert relu["id_risk"] < 0.05 and relu["ood_risk"] > 0.75 and relu["worst_risk"] > 0.95 and relu["bg_sum"] > 0.8
    assert linear["id_risk"] < 0.05 and linear["ood_risk"] < 0.05 and abs(linear["bg_sum"]) < 0.05


def test_what_was_not_run_is_not_judged(reference_run):
    found = feature_contamination.judge(reference_run)
    folded = claim.verdicts(found)
    names = [f"C{i}" for i in range(1, 17) if i not in (8, 9)]
    names += [f"P{i}" for i in range(1, 5)] + [f"X{i}" for i in range(1, 6)]
    assert list(folded) == names
    assert set(claim.verdicts(found, "identity")) == {"C8", "C9", "C13", "C14"}
    assert folded["C4"] != claim.NOT_TESTED
    for name in ("C7", "C10", "C12", "C13", "C14", "C15", "C16", "P1", "P2", "P3", "X1", "X2", "X3", "X4", "X5"):
        assert folded[name] == claim.NOT_TESTED, name


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("arm", ["script", "granularity", "shells"])
def test_one_seed_gives_the_same_bytes_in_any_batch(arm, monkeypatch):
    cfg = Settings(**SMALL | ARMS[arm] | {"seeds": 2}, steps=10)
    pd.testing.assert_frame_equal(table_of(cfg), table_of(cfg), check_exact=True)
    monkeypatch.setattr(engine, "CPU_WORK", 1)
    pd.testing.assert_frame_equal(
        table_of(cfg), table_of(cfg.model_copy(update={"seeds": 3})).iloc[: len(table_of(cfg))]
    )


def test_a_diverging_run_says_when():
    wild = {**SMALL, **REGRESSION, "name": "wild", "lr": 900.0, "steps": 30}
    table = table_of(Settings(**wild), Settings(**SMALL, **REGRESSION, name="tame", steps=30))
    rows = table[table["setting"] == "wild"]
    assert rows["event"].iloc[-1] == "diverged" and "diverged at step" in rows["outcome"].iloc[0]
    assert set(table.loc[table["setting"] == "tame", "outcome"]) == {"ran all steps"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"d": "50"}, "d: must be at least d_core \\+ d_bg = 64 orthonormal features, but is 50"),
        ({"optimiser": "adamw"}, "coordinates: 'reduced' is exact for Gaussian weights and SGD only"),
        ({"init": "framework"}, "coordinates: 'reduced' is exact"),
        ({"optimiser": "adamw", "coordinates": "full", "momentum": "0.9"}, "momentum: AdamW has betas"),
        ({"lr": "10", "decay": "0.2"}, "decay: lr decay < 1 must hold, but it is 2"),
        ({"data": "fixed", "batch": "5"}, "batch: a fixed set has equal classes"),
        ({"neurons": "300"}, "neurons: there are m = 256"),
        ({"g": "2"}, "g: labels finer than the two classes are for task 'granularity'"),
        ({"task": "granularity", "subclasses": "5"}, "subclasses: half of d_core = 32 is split"),
        ({"task": "granularity", "g": "3"}, "g: must divide subclasses = 4, but 3 does not"),
        ({"task": "granularity", "g": "4", "m": "20"}, "g: each of the 2g = 8 labels"),
        ({"task": "granularity", "g": "4", "labels": "background", "d_bg": "30"}, "g: must divide d_bg = 30"),
        ({"task": "granularity", "init": "framework", "coordinates": "full"}, "init: task 'granularity' has"),
        ({"objective": "softmax"}, "objective: can be chosen for task 'granularity' only"),
        ({"lrr": "1"}, "lrr: unknown key; did you mean 'lr'"),
    ],
)
def test_impossible_settings_are_refused(overrides, message):
    with pytest.raises(GranularityError, match=message):
        simulation.settings_from(feature_contamination, overrides)


def test_sizes_have_names_of_their_own():
    for settings in feature_contamination.SIZES.values():
        assert len({item.name for item in settings}) == len(settings)


def test_conditions_of_the_theorems():
    met = Settings().conditions()
    assert [words for words, here in met.items() if not here] == ["d >= d0^2.01", "d_bg <= d0/ln d0"]
    assert all(Settings(d=5000, d_bg=10).conditions().values())
    other = Settings(activation="tanh", momentum=0.5, data="fixed", bg_low=-0.5, m=300, decay=0.5).conditions()
    assert [words for words, here in other.items() if here] == ["weights N(0, I/d), no biases"]
    assert Settings(task="granularity").conditions() == {}


def test_all_arms_give_checks_and_figures(tmp_path: Path, monkeypatch):
    short = {"steps": 2, "seeds": 1, "batch": 20, "m": 32}
    arms = [arm.model_copy(update=short) for arm in feature_contamination.SIZES["paper"]]
    monkeypatch.setitem(feature_contamination.SIZES, "tiny", arms)
    judge("feature_contamination", [train("feature_contamination", tmp_path / "trained")], tmp_path / "judged")
    rows = pd.read_csv(tmp_path / "judged" / "checks.csv")
    assert_rows_name_their_arms(rows, "feature_contamination")
    assert rows.loc[rows["arms"] == RELU, "conditions"].str.contains("d >= d0^2.01: NOT met", regex=False).all()
    table = pd.read_parquet(tmp_path / "judged" / "runs.parquet")
    found = feature_contamination.judge(table)
    void = [one for one in found if one.quantity.startswith(f"{RANDOM}: margin")]
    assert {one.verdict for one in void} == {claim.NOT_TESTED} and "no margin between classes" in void[0].why
    folded = claim.verdicts(found)
    unseen = [name for name, verdict in folded.items() if verdict == claim.NOT_TESTED]
    assert unseen == ["C15", "P1"]  # P1 reads step 20,000
    swept = [one for one in found if one.id == "C16" and one.quantity.endswith("OOD risk")]
    assert {one.verdict for one in swept} == {claim.NOT_TESTED} and "not learnt: ID risk" in swept[0].why
    feature_contamination.figures(table, tmp_path / "again")
    drawn = sorted((tmp_path / "judged" / "figures").glob("*.svg"))
    assert len(drawn) == 9
    assert all(path.read_bytes() == (tmp_path / "again" / path.name).read_bytes() for path in drawn)
