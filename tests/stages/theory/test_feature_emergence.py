"""World 3: closed forms of the data, gradients against autograd, the schedule against float64, claims."""

import numpy as np
import pandas as pd
import pytest
import torch

from granularity.claims import claim, published
from granularity.stages.theory import engine, nets
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds import feature_emergence
from granularity.stages.theory.worlds.feature_emergence import claims, data, further, kernels, learners, model
from granularity.stages.theory.worlds.feature_emergence.settings import PLAIN, SMALL, TABLED, Settings
from support.worlds import generator

TINY = {"d": 24, "D": 12, "m": 8, "n": 400, "test": 200, "batch": 50, "steps": 12, "seeds": 1}


def table_of(*settings):
    return engine.run_table(feature_emergence, settings, "cpu")


def prepared(**more):
    """A tiny run: its settings, trial, data, initial network and what trains models on it."""
    cfg = Settings(**TINY | more)
    runs, device = [engine.Trial(cfg, 0)], torch.device("cpu")
    known, _ = data.prepare(runs, device)
    return cfg, runs, known, model.initial(runs, known, device), learners.Learner(runs, known, device)


def patterns_of(cfg, count, seed=0):
    relevant = torch.arange(cfg.k)
    codes = torch.randint(2, (2 * data.CODES, cfg.k), generator=generator(9)).float()
    return data.draw(cfg, count, relevant, codes, generator(seed))


# ---------------------------------------------------------------- data


def test_parity_mixture_has_the_stated_marginals_and_gamma():
    n = 100_000
    cfg = Settings(**SMALL)
    phi, y = patterns_of(cfg, n)
    assert (phi.mean(0) - 0.5).abs().max() < 4.5 * 0.5 / n**0.5 and abs(y.mean()) < 4 / n**0.5
    gamma = (phi * y.unsqueeze(1)).mean(0)
    assert gamma[:5] == pytest.approx(np.full(5, 0.25), abs=4 / n**0.5) and cfg.gamma == 0.25
    assert gamma[5:].abs().max() < 4.5 * 0.5 / n**0.5
    assert (y == 2 * (phi[:, :5].sum(1) % 2) - 1).all()
    plain = patterns_of(Settings(**SMALL, structured=False), n)
    assert (plain[0] * plain[1].unsqueeze(1)).mean(0).abs().max() < 4.5 / n**0.5


def test_the_best_threshold_on_the_count_reaches_the_exact_ceiling():
    # exactly: half the inputs are all-zero or all-one, the other half the 32 patterns; labels are parity
    mass = {(s, y): 0.0 for s in range(6) for y in (0, 1)}
    for pattern in range(32):
        s = bin(pattern).count("1")
        mass[s, s % 2] += 0.5 / 32
    for s in (0, 5):
        mass[s, s % 2] += 0.25
    best = max(sum(mass[s, int(s >= cut)] for s in range(6)) for cut in range(7))
    assert 100 * best == data.CEILING == 84.375
    phi, y = patterns_of(Settings(**SMALL), 100_000)
    assert 100 * ((phi[:, :5].sum(1) >= 3) == (y > 0)).float().mean().item() == pytest.approx(84.375, abs=0.5)


def test_interval_rule_is_a_half_space_with_the_stated_shares():
    small = {"k": 30, "D": 40, "d": 40, "rule": "interval"}
    for structured, share in ((True, 0.584), (False, 0.049)):
        cfg = Settings(**small, structured=structured)
        phi, y = patterns_of(cfg, 50_000)
        assert (y > 0).float().mean().item() == pytest.approx(share, abs=0.01)
        assert ((phi[:, :30].sum(1) >= 20) == (y > 0)).all()
        if structured:
            covariance = (phi[:, :30] * (y - y.mean()).unsqueeze(1)).mean(0)
            assert covariance.mean().item() == pytest.approx(cfg.gamma, rel=0.03)


@pytest.mark.parametrize("labels", ["halves", "count", "pattern", "random"])
def test_fine_labels_refine_the_rule(labels):
    cfg = Settings(**TINY, labels=labels)
    phi, y = patterns_of(cfg, 2000)
    signs, parity = data.draw_labels(cfg, phi[:, :5], y, generator(3))
    assert signs.shape == (2000, cfg.outputs) and ((signs > 0).sum(1) == 1).all()
    assert (parity[signs.argmax(1)] == y).all() and (signs > 0).any(0).all()


def test_prepared_inputs_have_unit_mean_square():
    for rule in ({}, {"rule": "interval", "k": 6}, {"rule": "hidden", "k": 6}):
        known = prepared(n=5000, **rule)[2]
        assert known["train x"].square().sum(2).mean().item() == pytest.approx(1, abs=0.01)
        assert known["u"].norm(dim=1).item() == pytest.approx(1)


@pytest.mark.parametrize("mu", [0.5, 9.0])
def test_columns_are_as_incoherent_as_asked_for_or_as_drawn(mu):
    cfg = Settings(**SMALL, coordinates="inputs", coherence=mu)
    span = nets.orthonormal(cfg.D, cfg.d, generator()).T
    inner = (columns := data.dictionary(cfg, span, generator(1)).double()).T @ columns
    drawn = torch.randn(cfg.d, cfg.D, generator=generator(1), dtype=torch.float64)
    drawn = (drawn / drawn.norm(dim=0)).T @ (drawn / drawn.norm(dim=0))
    largest = (drawn - torch.eye(cfg.D)).abs().max() * cfg.d**0.5
    wanted = torch.eye(cfg.D) + min(1, mu / largest) * (drawn - torch.eye(cfg.D))
    assert 2 < largest < 9 and torch.allclose(inner, wanted, atol=1e-5)
    assert (inner - torch.eye(cfg.D)).abs().max() * cfg.d**0.5 <= mu + 1e-4


@pytest.mark.parametrize("share", [None, 0.8])
def test_input_noise_enters_sigma_and_is_divided_by_it(share):
    noise = {"coordinates": "inputs", "input_noise": 0.3, "negative_share": share}
    cfg, _, known, *_ = prepared(n=20_000, **noise)
    x, basis = known["train x"][0], known["basis"][0]
    total = 0.3**2 / (x @ basis[:, cfg.D :]).var().item()  # sigma~^2, of the directions that are noise alone
    relevant = 0.5 if share is None else 0.8 * 0.25 + 0.2 * 0.75  # probability of a relevant pattern
    signal = 7 / 4 + 5 * relevant * (1 - relevant)
    assert total == pytest.approx(signal + cfg.d * 0.3**2, rel=0.01)
    assert x.square().sum(1).mean().item() == pytest.approx(1, abs=0.01)


# ---------------------------------------------------------------- activation and gradients


def test_noise_is_averaged_out_exactly():
    z, s = torch.linspace(-0.5, 1.5, 21, dtype=torch.float64), 0.3
    noise = s * torch.randn(400_000, 1, dtype=torch.float64, generator=generator())
    smooth = model.smoothed(s)
    assert torch.allclose(smooth.value(z), (z + noise).clamp(0, 1).mean(0), atol=2e-3)
    z.requires_grad_()
    (wanted,) = torch.autograd.grad(smooth.value(z).sum(), z)
    assert torch.allclose(smooth.slope(z).detach(), wanted, atol=1e-12)
    assert model.smoothed(0) is nets.TRUNCATED_RELU


def test_adam_is_adam():
    net = {"w": torch.ones(1, 2, 3), "b": torch.ones(1, 2), "a": torch.ones(1, 2, 2), "c": torch.ones(1, 2)}
    theirs = [torch.nn.Parameter(value.clone()) for value in net.values()]
    other = torch.optim.Adam(theirs, lr=further.RATE, betas=further.BETAS, eps=further.EPSILON)
    state = net | {f"{m} {k}": torch.zeros_like(v) for m in ("first", "second") for k, v in net.items()}
    for t in range(4):
        down = {k: torch.randn(v.shape, generator=generator(t)) for k, v in net.items()}
        for parameter, key in zip(theirs, net, strict=True):
            parameter.grad = -down[key]
        other.step()
        state = further.adam(state, down, t)
    for parameter, key in zip(theirs, net, strict=True):
        assert torch.allclose(parameter, state[key], atol=1e-6)


# ---------------------------------------------------------------- the schedule


def reference(cfg, known, start, order):
    """Steps 1, 2 and SGD, literally, in R^d, penalties and all, by autograd in float64; w at steps 1, 2, end."""
    x, y = known["train x"][0].double(), known["train y"][0].double()
    net = [start[key][0].double() for key in ("w", "b", "a")]
    positive = (y > 0).double().mean()

    def gradients(x, y, weight, phi):
        w, b, a = leaves = [one.detach().requires_grad_() for one in net]
        g = phi.value(x @ w.T + b) @ a[0]
        return torch.autograd.grad((weight * (1 - y * g).relu()).mean(), leaves)

    kept, eta1 = [], cfg.gamma**2 * cfg.sigma / (cfg.k * cfg.m**3)
    eta1 *= min(positive, 1 - positive).item() if cfg.input_noise else 1
    weight, phi = torch.where(y > 0, 0.5 / positive, 0.5 / (1 - positive)), model.smoothed(cfg.k**-1.5)
    for eta, *penalties in ((eta1, 1 / (2 * eta1), 0, 0), (1.0, 0.5, 0, 0.5)):
        steps = zip(net, gradients(x, y, weight, phi), penalties, strict=True)
        net = [one - eta * (down + 2 * penalty * one) for one, down, penalty in steps]
        kept.append(net[0])
    kappa = 1 / (x[:5000] @ net[0].T).square().mean().sqrt()
    net = [kappa * net[0], kappa * net[1], net[2]]
    for some in order[0, : cfg.steps - 2]:
        found = gradients(x[some], y[some], 1.0, nets.TRUNCATED_RELU)
        net = [one - cfg.rate * down for one, down in zip(net, found, strict=True)]
    return [*kept, net[0]]


IN_GENERAL = {"negative_share": 0.8, "coherence": 0.5, "input_noise": 0.3}


@pytest.mark.parametrize("arm", [{}, {"negative_share": 0.8}, IN_GENERAL], ids=["balanced", "unbalanced", "general"])
def test_training_follows_the_float64_reference_in_full_dimension(arm):
    cfg, run, known, start, learn = prepared(**arm, coordinates="inputs")
    _, state = model.two_steps(run, start, known)
    scale = model.kappa(state["w"], known["train x"])
    net = {"w": scale.unsqueeze(2) * state["w"], "b": scale * state["b"], "a": state["a"], "out": state["out"]}
    _, end = learn.descend(net, cfg.rate, "network")
    for got, wanted in zip((state["w1"], state["w"], end["w"]), reference(cfg, known, start, learn.order), strict=True):
        assert (got[0] - wanted).norm() / wanted.norm() < 1e-3
    # in the span of the inputs, as nothing else is left
    outside = state["w1"] @ known["basis"][:, :, cfg.D :]
    assert cfg.input_noise or outside.norm() / state["w1"].norm() < 1e-5


def test_coordinates_of_the_dictionary_change_nothing():
    settings = [Settings(**TINY, name=name, coordinates=name) for name in ("dictionary", "inputs")]
    table = table_of(*settings)
    inside, full = (table[table["setting"] == name].reset_index(drop=True) for name in ("dictionary", "inputs"))
    columns = ["step", "phase", "loss", "cos_max", "cos_mean", "cos_min", "test_acc"]
    pd.testing.assert_frame_equal(inside[columns], full[columns], rtol=1e-2, atol=1e-3)


def test_mirrored_start_is_zero_and_folding_mirror_neurons_is_exact():
    _, _, known, start, learn = prepared()
    g = nets.two_layer(known["test x"], start["w"], start["a"], nets.TRUNCATED_RELU, start["b"])[0]
    assert g.abs().max() < 1e-6 * start["a"].abs().sum()
    half = {"w": start["w"][:, :8], "b": start["b"][:, :8], "a": start["a"][:, :, :8]}
    for method, rate in ((learn.head, 0.5), (learn.tangent, 0.01)):
        one = method(half, rate, "x", fold=2)
        other = method(start, rate, "x")
        assert [r["loss"] for r in one] == pytest.approx([r["loss"] for r in other], rel=1e-4)
        assert one[-1]["loss"] < one[0]["loss"]


def test_tangent_model_is_the_first_order_expansion():
    """One SGD step on the linearisation = one SGD step on the network, for a small step."""
    *_, start, learn = prepared(steps=3)
    rate = 1e-6
    rows = learn.tangent(start, rate, "x")
    other, _ = learn.descend(start, rate, "y", start=0)
    falls = [1 - r[-1]["loss"] for r in (rows, other)]
    assert falls[0] == pytest.approx(falls[1], rel=0.05, abs=2e-6)


def test_ridge_is_the_regularised_least_squares_solution():
    cfg, _, known, _, learn = prepared()
    (row,) = learn.ridge(None, "x")
    x = torch.cat([known["train x"][0], torch.ones(cfg.n, 1)], 1).double().numpy()
    y = known["train y"][0].double().numpy()
    penalty = row["penalty"] * np.square(x).mean() * cfg.n
    c = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)
    assert row["train_acc"] == pytest.approx(100 * np.mean((x @ c > 0) == (y > 0)), abs=0.3)


def test_kernel_rows_are_the_best_on_validation_data_and_repeat():
    cfg, runs, known, _, _ = prepared(methods=("network", "kernels"))
    rows = kernels.kernels(runs, known)
    assert [row["phase"] for row in rows[:3]] == [f"polynomial kernel of degree {degree}" for degree in (2, 3, 5)]
    assert {row["phase"] for row in rows[3:]} == {
        "Gaussian kernel",
        "16 random Fourier features",
        "80 random Fourier features",
    }
    assert rows == kernels.kernels(runs, known)
    x, y = (known[name][0].double().numpy() for name in ("train x", "train y"))
    K = (x @ x.T + 1) ** 2
    found = [
        np.mean(
            np.sign(
                (known["val x"][0].double().numpy() @ x.T + 1) ** 2 @ np.linalg.solve(K + penalty * np.eye(cfg.n), y)
            )
            == known["val y"][0].numpy()
        )
        for penalty in kernels.PENALTIES
    ]
    assert (
        rows[0]["val_acc"] == pytest.approx(100 * max(found))
        and rows[0]["penalty"] == kernels.PENALTIES[np.argmax(found)]
    )


# ---------------------------------------------------------------- the other data models


def test_clusters_and_coverage():
    corners, labels = further.centres(3, 6)
    assert corners.shape == (8, 6) and (labels == corners[:, :3].prod(1)).all() and labels.sum() == 0
    found = further.coverage(corners.unsqueeze(0)[:, :4] * 2, corners)
    assert found["covered"].item() == 0.5 and found["near_share"].item() == 1
    cfg = Settings(experiment="clusters", k=3, d=6, sigma_r=0.5, n=4000)
    x, y = further.draw_clusters(cfg, 20_000, generator())
    signs = x[:, :3].sign()
    assert x.square().sum(1).mean().item() == pytest.approx(3 + 0.25 * 3, rel=0.02)
    assert ((signs.prod(1) == y).float().mean()) > 0.9


def test_teacher_selection_takes_the_first_minimum_and_padding_stays_zero():
    assert further.select([0.7, 0.4, 0.5, 0.2, 0.1, 0.1, 0.05]) == 4
    assert further.select([7, 6, 5, 4, 3, 2, 1]) == further.SIZES[-1]
    run = engine.Trial(Settings(experiment="digits", n=1297, batch=128), 0)
    sets = further.draw_digits(run, torch.device("cpu"))
    assert sets["L"].shape == (1297, 64) and sets["U_test"].shape == (500, 64)
    assert sets["L"].mean().abs() < 1e-5 and sets["L"].std().item() == pytest.approx(1, abs=1e-4)
    x, y = sets["L"].unsqueeze(0).repeat(2, 1, 1), sets["labels"].unsqueeze(0).repeat(2, 1)
    runs = [run, engine.Trial(run.settings, 1)]
    rows, net = further.fit(runs, "x", [2, 6], (x, y), 100, lambda net: {"acc": further.hits(net, x, y)})
    assert not net["w"][0, 2:].any() and not net["a"][0, :, 2:].any() and net["w"][1, 5].any()
    assert rows[-1]["acc"] > 70


# ---------------------------------------------------------------- runs, claims, stage


def test_features_emerge_with_structure_or_with_fine_labels_and_not_without():
    size = SMALL | {"seeds": 1, "steps": 402}
    arms = [
        Settings(**size, name="small"),
        Settings(**size, name=f"small, {PLAIN}", structured=False),
        Settings(**size, name="fine", structured=False, labels="count"),
    ]
    table = table_of(*arms)
    verdict = {check.quantity: check.verdict for check in feature_emergence.judge(table)}
    assert verdict["small: mean |cosine| with u after step 2"] == claim.HOLDS
    assert verdict["small: network, test accuracy"] == claim.HOLDS
    assert verdict[f"small, {PLAIN}: network, test accuracy"] == claim.HOLDS
    assert at(table, "fine", "test_acc", phase="network") > 95


def test_a_slower_part_of_a_mixture_is_later_by_its_own_last_accuracy():
    rows = {"step": [0, 50, 100, 400], "L_acc": [10.0, 90.0, 95.0, 95.0], "U_acc": [10.0, 20.0, 60.0, 66.0]}
    table = pd.DataFrame(rows).assign(setting="some", phase="student, mixture", seed=0)
    runs = claims.Runs(table)
    assert claims.later(runs, "some") == [50.0] and claims.smallest_gap(runs, "some") == [29.0]
    assert claims.later(runs, "other") == claims.smallest_gap(runs, "other") == []


def test_every_number_of_the_tables_is_judged_and_has_an_arm_at_every_size():
    empty = table_of(Settings(**TINY)).iloc[:0]
    found = [one for one in feature_emergence.judge(empty) if one.id in ("T1", "T2", "T3", "T4", "T5")]
    printed = [row for row in published.read("feature_emergence") if row["table"] in ("T1", "T2", "T3", "T4", "T5")]
    assert len(found) == len(printed) == 136
    assert sorted((one.id, *one.published) for one in found) == sorted(
        (row["table"], float(row["mean"])) for row in printed
    )
    assert all(one.low < one.published[0] < one.high and one.judged == "mean" for one in found)
    for size in feature_emergence.SIZES.values():
        methods = {arm.name: arm.methods for arm in size}
        for (arm,) in (one.arms for one in found):
            assert {"network"} <= set(methods[arm]) and (PLAIN in arm or set(TABLED) <= set(methods[arm]))


def test_what_needs_images_says_so_for_each_number():
    empty = table_of(Settings(**TINY)).iloc[:0]
    found = [one for one in feature_emergence.judge(empty) if one.id in ("A14", "A15") and one.published]
    assert len(found) == 3 + 12 and {one.why for one in found} == {claims.IMAGES}
    theirs = [float(row["mean"]) for row in published.read("feature_emergence", "T7")]
    assert sorted(one.published[0] for one in found if one.id == "A15") == sorted(theirs)


def test_conditions_of_the_theorems():
    (scheduled,) = (words for words in Settings().conditions() if words.startswith("no rescaling"))
    assert [words for words, met in Settings().conditions().items() if not met] == [scheduled]
    assert all(Settings(methods=("literal",)).conditions().values())
    other = Settings(rule="hidden", D=60, k=50, m=50, noise=False, residual=1.0, steps=100, weighted=False)
    met = other.conditions()
    assert [words.partition(" ")[0] for words, here in met.items() if here] == ["one", "balanced", "sqrt(2N)"]
    assert not all(Settings(rule="interval", k=6, structured=False).conditions().values())
    assert not all(Settings(labels="count", structured=False).conditions().values())
    assert Settings(structured=False).conditions() and not Settings(experiment="clusters").conditions()
