"""World 3: closed forms of the data, gradients against autograd, the schedule against float64, claims."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.claims import claim
from granularity.stages.theory import engine, nets, simulation
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds import feature_emergence
from granularity.stages.theory.worlds.feature_emergence import clusters, data, digits, fixed, measures, model
from granularity.stages.theory.worlds.feature_emergence.arms import PLAIN, SMALL
from granularity.stages.theory.worlds.feature_emergence.settings import Settings
from support.worlds import assert_rows_name_their_arms, judge, train

TINY = {"d": 24, "D": 12, "m": 8, "n": 400, "test": 200, "batch": 50, "steps": 12, "seeds": 1}


def table_of(*settings):
    return engine.run_table(feature_emergence, settings, "cpu")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


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


@pytest.mark.parametrize("share", [0.8, 0.9])
def test_rejection_gives_the_exact_share(share):
    _, y = patterns_of(Settings(**TINY, negative_share=share), 1000)
    assert (y < 0).sum().item() == share * 1000


@pytest.mark.parametrize("labels", ["halves", "count", "pattern", "random"])
def test_fine_labels_refine_the_rule(labels):
    cfg = Settings(**TINY, labels=labels)
    phi, y = patterns_of(cfg, 2000)
    signs, parity = data.draw_labels(cfg, phi[:, :5], y, generator(3))
    assert signs.shape == (2000, cfg.outputs) and ((signs > 0).sum(1) == 1).all()
    assert (parity[signs.argmax(1)] == y).all() and (signs > 0).any(0).all()


def test_prepared_inputs_have_unit_mean_square():
    for rule in ({}, {"rule": "interval", "k": 6}, {"rule": "hidden", "k": 6}):
        prepared = data.prepare([engine.Trial(Settings(**{**TINY, "n": 5000}, **rule), 0)], "cpu")
        assert prepared.train.x.square().sum(2).mean().item() == pytest.approx(1, abs=0.01)
        assert prepared.u.norm(dim=1).item() == pytest.approx(1)


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


@pytest.mark.parametrize("outputs", [1, 6])
def test_gradient_is_that_of_the_weighted_hinge_loss(outputs, monkeypatch):
    monkeypatch.setattr(model, "CHUNK", 7)  # 20 samples in three chunks
    draw = generator(1)
    x = torch.randn(2, 20, 5, generator=draw, dtype=torch.float64)
    signs = torch.randn(2, 20, outputs, generator=draw).sign().double()
    weight = torch.rand(2, 20, outputs, generator=draw, dtype=torch.float64) + 0.5
    net = {"w": torch.randn(2, 4, 5, generator=draw), "b": torch.randn(2, 4, generator=draw)}
    net["a"] = torch.randn(2, outputs, 4, generator=draw)
    net = {key: value.double().requires_grad_() for key, value in net.items()}
    phi = model.smoothed(0.2)
    h = phi.value(torch.einsum("bnp,brp->bnr", x, net["w"]) + net["b"].unsqueeze(1))
    g = torch.einsum("bnr,bcr->bnc", h, net["a"])
    loss = (weight * (1 - signs * g).clamp_min(0)).sum(2).mean(1)
    wanted = torch.autograd.grad(loss.sum(), list(net.values()))
    got_loss, got = model.gradient({k: v.detach() for k, v in net.items()}, x, signs, phi, weight)
    assert torch.allclose(got_loss, loss)
    for value, (key, tensor) in zip(wanted, net.items(), strict=True):
        assert torch.allclose(got[key], -value, atol=1e-12) and got[key].shape == tensor.shape


def test_regulariser_gradient_and_meaning():
    logits = torch.randn(2, 30, 10, generator=generator(), dtype=torch.float64).requires_grad_()
    value, down = digits.regulariser(logits, 0.7, 1.3)
    (wanted,) = torch.autograd.grad(value.sum(), logits)
    assert torch.allclose(down.detach(), -30 * wanted, atol=1e-12)
    balanced = 50 * torch.eye(10, dtype=torch.float64).repeat(3, 1).unsqueeze(0)
    assert digits.regulariser(balanced)[0].item() == pytest.approx(-math.log(10))  # the least R can be


def test_adam_is_adam():
    net = {"w": torch.ones(1, 2, 3), "b": torch.ones(1, 2), "a": torch.ones(1, 2, 2), "c": torch.ones(1, 2)}
    theirs = [torch.nn.Parameter(value.clone()) for value in net.values()]
    other = torch.optim.Adam(theirs, lr=digits.RATE, betas=digits.BETAS, eps=digits.EPSILON)
    state = net | {f"{m} {k}": torch.zeros_like(v) for m in ("first", "second") for k, v in net.items()}
    for t in range(4):
        down = {k: torch.randn(v.shape, generator=generator(t)) for k, v in net.items()}
        for parameter, key in zip(theirs, net, strict=True):
            parameter.grad = -down[key]
        other.step()
        state = digits.adam(state, down, t)
    for parameter, key in zip(theirs, net, strict=True):
        assert torch.allclose(parameter, state[key], atol=1e-6)


# ---------------------------------------------------------------- the schedule


def reference(cfg):
    """Steps 1, 2 and SGD, literally, in R^d, penalties and all, in float64 NumPy; w at steps 1, 2, end."""
    from scipy.stats import norm

    run = engine.Trial(cfg, 0)
    prepared = data.prepare([run], torch.device("cpu"))
    x, y = prepared.train.x[0].double().numpy(), prepared.train.y[0].double().numpy()
    start = model.initial([run], prepared, torch.device("cpu"))
    w, b, a = (start[key][0].double().numpy() for key in ("w", "b", "a"))
    a = a[0]
    order = model.batches([run], cfg, torch.device("cpu"))[0].numpy()
    positive = (y > 0).mean()
    weight = np.where(y > 0, 0.5 / positive, 0.5 / (1 - positive))

    def grads(x, y, weight, s):
        z = x @ w.T + b
        if s:
            up, low = (1 - z) / s, -z / s
            slope = norm.cdf(up) - norm.cdf(low)
            h = z * slope + s * (norm.pdf(low) - norm.pdf(up)) + 1 - norm.cdf(up)
        else:
            slope, h = (z > 0) & (z < 1), np.clip(z, 0, 1)
        pull = -weight * y * (1 - y * (h @ a) > 0) / len(y)
        back = pull[:, None] * a * slope
        return back.T @ x, back.sum(0), h.T @ pull

    kept = []
    s, eta1 = cfg.k**-1.5, cfg.gamma**2 * cfg.sigma / (cfg.k * cfg.m**3)
    for eta, penalty_a, penalty_w in ((eta1, 0.0, 1 / (2 * eta1)), (1.0, 0.5, 0.5)):
        dw, db, da = grads(x, y, weight, s)
        w, b, a = w - eta * (dw + 2 * penalty_w * w), b - eta * db, a - eta * (da + 2 * penalty_a * a)
        kept.append(w)
    kappa = 1 / np.sqrt(np.square(x[:5000] @ w.T).mean())
    w, b = kappa * w, kappa * b
    for t in range(cfg.steps - 2):
        dw, db, da = grads(x[order[t]], y[order[t]], 1.0, 0)
        w, b, a = w - cfg.rate * dw, b - cfg.rate * db, a - cfg.rate * da
    return [*kept, w]


@pytest.mark.parametrize("arm", [{}, {"negative_share": 0.8}], ids=["balanced", "unbalanced"])
def test_training_follows_the_float64_reference_in_full_dimension(arm):
    cfg = Settings(**TINY, **arm, coordinates="inputs")
    run, device = engine.Trial(cfg, 0), torch.device("cpu")
    prepared = data.prepare([run], device)
    _, state = model.two_steps([run], model.initial([run], prepared, device), prepared)
    scale = model.kappa(state["w"], prepared.train.x)
    net = {
        "w": scale.unsqueeze(2) * state["w"],
        "b": scale * state["b"],
        "a": state["a"],
        "out": state["out"],
    }
    order = model.batches([run], cfg, device)
    _, end = model.descend([run], net, prepared, order, cfg.rate, "network")
    for got, wanted in zip((state["w1"], state["w"], end["w"]), reference(cfg), strict=True):
        error = np.linalg.norm(got[0].double().numpy() - wanted) / np.linalg.norm(wanted)
        assert error < 1e-3
    # in the span of the inputs, as nothing else is left
    outside = state["w1"] @ prepared.basis[:, :, cfg.D :]
    assert outside.norm() / state["w1"].norm() < 1e-5


def test_coordinates_of_the_dictionary_change_nothing():
    settings = [Settings(**TINY, name=name, coordinates=name) for name in ("dictionary", "inputs")]
    table = table_of(*settings)
    inside, full = (table[table["setting"] == name].reset_index(drop=True) for name in ("dictionary", "inputs"))
    columns = ["step", "phase", "loss", "cos_max", "cos_mean", "cos_min", "test_acc"]
    pd.testing.assert_frame_equal(inside[columns], full[columns], rtol=1e-2, atol=1e-3)


def test_mirrored_start_is_zero_and_folding_mirror_neurons_is_exact():
    cfg = Settings(**TINY)
    run, device = engine.Trial(cfg, 0), torch.device("cpu")
    prepared = data.prepare([run], device)
    start = model.initial([run], prepared, device)
    g = nets.two_layer(prepared.test.x, start["w"], start["a"], nets.TRUNCATED_RELU, start["b"])[0]
    assert g.abs().max() < 1e-6 * start["a"].abs().sum()
    order = model.batches([run], cfg, device)
    half = {"w": start["w"][:, :8], "b": start["b"][:, :8], "a": start["a"][:, :, :8]}
    for method, rate in ((fixed.head, 0.5), (fixed.tangent, 0.01)):
        one = method([run], half, prepared, order, rate, "x", fold=2)
        other = method([run], start, prepared, order, rate, "x")
        assert [r["loss"] for r in one] == pytest.approx([r["loss"] for r in other], rel=1e-4)
        assert one[-1]["loss"] < one[0]["loss"]


def test_tangent_model_is_the_first_order_expansion():
    """One SGD step on the linearisation = one SGD step on the network, for a small step."""
    cfg = Settings(**{**TINY, "steps": 3})
    run, device = engine.Trial(cfg, 0), torch.device("cpu")
    prepared = data.prepare([run], device)
    start = model.initial([run], prepared, device)
    order = model.batches([run], cfg, device)
    rate = 1e-6
    rows = fixed.tangent([run], start, prepared, order, rate, "x")
    other, _ = model.descend([run], start, prepared, order, rate, "y", start=0)
    falls = [1 - r[-1]["loss"] for r in (rows, other)]
    assert falls[0] == pytest.approx(falls[1], rel=0.05, abs=2e-6)


def test_class_weights_balance():
    signs = torch.tensor([1.0, 1, 1, -1]).view(1, 4, 1)
    weight = model.class_weights(signs).flatten()
    assert weight.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2]) and weight.mean() == 1


def test_ridge_is_the_regularised_least_squares_solution():
    cfg = Settings(**TINY)
    run = engine.Trial(cfg, 0)
    prepared = data.prepare([run], "cpu")
    (row,) = fixed.ridge([run], None, prepared, "x")
    x = torch.cat([prepared.train.x[0], torch.ones(cfg.n, 1)], 1).double().numpy()
    y = prepared.train.y[0].double().numpy()
    penalty = row["penalty"] * np.square(x).mean() * cfg.n
    c = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)
    assert row["train_acc"] == pytest.approx(100 * np.mean((x @ c > 0) == (y > 0)), abs=0.3)


# ---------------------------------------------------------------- the other data models


def test_clusters_and_coverage():
    corners, labels = clusters.centres(3, 6)
    assert corners.shape == (8, 6) and (labels == corners[:, :3].prod(1)).all() and labels.sum() == 0
    found = clusters.coverage(corners.unsqueeze(0)[:, :4] * 2, corners)
    assert found["covered"].item() == 0.5 and found["near_share"].item() == 1
    cfg = Settings(experiment="clusters", k=3, d=6, sigma_r=0.5, n=4000)
    x, y = clusters.draw(cfg, 20_000, generator())
    signs = x[:, :3].sign()
    assert x.square().sum(1).mean().item() == pytest.approx(3 + 0.25 * 3, rel=0.02)
    assert ((signs.prod(1) == y).float().mean()) > 0.9


def test_classical_mds_of_three_directions():
    w = torch.tensor([[1.0, 0, 0], [-2, 0, 0], [0, 3, 0], [0, 0, 0]])
    u = torch.tensor([[1.0, 0, 0], [-1, 0, 0]])
    rows = measures.embed(engine.Trial(Settings(**TINY), 0), 1e-13 * w, u, 2)  # step 1 leaves so little
    assert [row["neuron"] for row in rows] == [0, 1, 2, -1, -2]  # the dead one is left out
    place = np.array([[row["mds_x"], row["mds_y"]] for row in rows])
    assert np.linalg.norm(place[0] - place[1]) == pytest.approx(2)
    assert np.linalg.norm(place[0] - place[2]) == pytest.approx(2**0.5)
    assert place[0] == pytest.approx(place[3])


def test_teacher_selection_takes_the_first_minimum_and_padding_stays_zero():
    assert digits.select([0.7, 0.4, 0.5, 0.2, 0.1, 0.1, 0.05]) == 4
    assert digits.select([7, 6, 5, 4, 3, 2, 1]) == digits.SIZES[-1]
    run = engine.Trial(Settings(experiment="digits", n=1297, batch=128), 0)
    sets = digits.draw(run, torch.device("cpu"))
    assert sets["L"].shape == (1297, 64) and sets["U_test"].shape == (500, 64)
    assert sets["L"].mean().abs() < 1e-5 and sets["L"].std().item() == pytest.approx(1, abs=1e-4)
    x, y = sets["L"].unsqueeze(0).repeat(2, 1, 1), sets["labels"].unsqueeze(0).repeat(2, 1)
    runs = [run, engine.Trial(run.settings, 1)]
    rows, net = digits.fit(runs, "x", [2, 6], x, y, 100, lambda net: {"acc": digits.hits(net, x, y)})
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


def test_same_seed_same_bytes_and_a_run_is_the_same_in_any_batch(monkeypatch):
    arms = [Settings(**{**TINY, "seeds": 2}, name=name, rate=rate) for name, rate in (("a", 0.1), ("b", 0.3))]
    monkeypatch.setattr(engine, "CPU_WORK", 1)
    alone = table_of(*arms)
    pd.testing.assert_frame_equal(alone, table_of(*arms), check_exact=True)
    monkeypatch.setattr(engine, "CPU_WORK", 1e12)
    together = table_of(*arms)
    assert len(engine.groups(arms, torch.device("cpu"))) == 1
    pd.testing.assert_frame_equal(alone, together, rtol=1e-3, atol=0.6)  # accuracies: one sample of 200


def test_divergence_is_recorded():
    table = table_of(Settings(**TINY, rate=1e38))
    assert table["outcome"].str.match(r"diverged at step").any()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"D": "200"}, "D: D <= d must hold, but D = 200"),
        ({"k": "51"}, "k: k <= D must hold, but k = 51 and D = 50"),
        ({"k": "4"}, "k: the parity rule needs an odd k"),
        ({"rule": "interval"}, "k: the interval rule needs a multiple of 3"),
        ({"rule": "hidden", "structured": "false"}, "structured: the hidden rule"),
        ({"steps": "2"}, "steps: must exceed 2"),
        ({"labels": "count", "negative_share": "0.8"}, "labels: 'count' is for the balanced parity rule"),
        ({"labels": "count", "methods": "[rf]"}, "methods: finer labels are for 'network' only, not rf"),
        ({"methods": "[reference]"}, "methods: 'reference' compares weights in R"),
        ({"residual": "1", "coordinates": "inputs"}, "residual: is for coordinates = dictionary"),
        ({"batch": "20000"}, "batch: at most the n = 10000"),
        ({"experiment": "clusters", "k": "101"}, "k: k <= d must hold"),
        ({"negative_share": "1"}, "negative_share = 1: input should be less than 1"),
        ({"rat": "1"}, "rat: unknown key; did you mean 'rate'"),
    ],
)
def test_bad_settings_are_refused(overrides, message):
    with pytest.raises(GranularityError, match=message):
        simulation.settings_from(feature_emergence, overrides)


def test_sizes_have_names_of_their_own_and_what_was_not_run_is_not_judged():
    for settings in feature_emergence.SIZES.values():
        assert len({item.name for item in settings}) == len(settings)
    table = table_of(Settings(**TINY, name="other"))
    found = feature_emergence.judge(table)
    folded = claim.verdicts(found) | claim.verdicts(found, "identity")
    assert set(folded) == {f"A{i}" for i in range(1, 21)} | {f"P{i}" for i in range(1, 7)} | {
        f"X{i}" for i in range(1, 5)
    }
    assert set(folded.values()) == {claim.NOT_TESTED}


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


def test_every_arm_of_both_sizes_can_be_drawn(tmp_path, monkeypatch):
    """All of quick, cut to a few steps and samples: every claim and figure finds what it reads."""
    arms = []
    for arm in feature_emergence.SIZES["quick"]:
        cut = {"seeds": 1, "steps": 12, "n": 300, "test": 100, "batch": 50, "student_steps": 5}
        cut |= {"m": 10} if arm.experiment == "patterns" else {"n": arm.n if arm.experiment == "digits" else 300}
        arms.append(Settings(**(arm.model_dump() | cut)))
    monkeypatch.setitem(feature_emergence.SIZES, "tiny", arms)
    judge("feature_emergence", [train("feature_emergence", tmp_path / "trained")], tmp_path / "judged")
    found = pd.read_csv(tmp_path / "judged" / "checks.csv")
    assert_rows_name_their_arms(found, "feature_emergence")
    paper = found[found["id"].str.startswith("P")].groupby("id")["published"].unique()
    wanted = {"P1": [100], "P2": [52.2], "P3": [0.848], "P4": [100], "P5": [70.4, 72.4, 81.7], "P6": [41]}
    assert {id: list(values) for id, values in paper.items()} == wanted
    unseen = set(found.loc[found["verdict"] == claim.NOT_TESTED, "id"])
    assert unseen <= {"A1", "A6", "A7", "A8", "A9", "A10", "A11", "A14", "A15", "A19", "A20", "P1", "P4", "P5"}
    names = {path.stem for path in (tmp_path / "judged" / "figures").glob("*.svg")}
    assert {"accuracy", "alignment", "granularity", "clusters", "digits", "u_curve"} <= names
    assert {"interval_accuracy", "neurons_small", "neurons_main_leftover_10"} <= names
