"""World 3: features emerge from the structure of inputs, and fixed features cannot replace them.

Shi, Wei, Liang, "A theoretical analysis on feature learning in neural networks: emergence from inputs and
advantage over fixed features" (ICLR 2022). An input is x = (M phi~ - E) / sigma~ for hidden patterns phi~ in
{0, 1}^D and orthonormal M; its label depends on s, how many of k relevant patterns it shows. The network is

    g(x) = sum over 2m neurons of a_i sigma(<w_i, x> + b_i),   sigma(z) = min(1, max(z, 0)),

mirrored at the start (w_{m+i} = w_i, b_{m+i} = b_i, a_{m+i} = -a_i, so g = 0), trained on the hinge loss: two
full-batch steps of the paper's schedule, which wipe the initial weights and move them onto the relevant
direction u; then, rescaled once so that <w, x> has r.m.s. 1, plain SGD. Labels finer than the rule's have one
output each, against the rest; two labels are one output.

Coordinates. Inputs lie in the span of M, so weights do as well once the first step has wiped the rest: `w`
are their coordinates there, `out` is what lies outside, which feeds no output but counts in cosines. (With
coordinates = inputs, all is in R^d and `out` is empty.) Shapes: B runs, n samples, p coordinates, C outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.feature_emergence import clusters, digits, fixed
from granularity.stages.theory.worlds.feature_emergence.data import Data, Split, prepare
from granularity.stages.theory.worlds.feature_emergence.measures import accuracy, alignment, embed, recorded
from granularity.stages.theory.worlds.feature_emergence.settings import Settings

CHUNK = 10_000  # rows of a full batch at once
LEAST = -87.0  # exponents below, whose power is no normal float32, take a hundred times as long
SCALE_INPUTS = 5000  # inputs over which kappa is measured
SMALL_A = 0.01  # residual variant: second layer before step 2, so that margins stay below 1
TANGENT = "tangent kernel"


def simulate(runs: Sequence[Trial], device: torch.device) -> list[dict[str, Any]]:
    """Train one group of any of the three experiments."""
    experiments = {"patterns": patterns, "clusters": clusters.simulate, "digits": digits.simulate}
    return experiments[runs[0].settings.experiment](runs, device)


# ---------------------------------------------------------------- activation and gradient


def smoothed(s: float) -> nets.Activation:
    """sigma averaged over neuron noise xi ~ N(0, s^2): E sigma(z + xi), and its derivative in z (1.2).

    With F, f the normal cdf and density: E sigma' = F((1 - z)/s) - F(-z/s), and E sigma =
    z E sigma' + s (f(-z/s) - f((1 - z)/s)) + 1 - F((1 - z)/s).
    """
    if s == 0:
        return nets.TRUNCATED_RELU

    def both(z: Tensor) -> tuple[Tensor, Tensor]:
        upper, lower = (1 - z) / s, -z / s
        above = torch.special.ndtr(upper)
        slope = above - torch.special.ndtr(lower)
        near, far = ((-0.5 * end**2).clamp_min_(LEAST).exp_() for end in (lower, upper))
        bump = near - far
        return z * slope + s / math.sqrt(2 * math.pi) * bump + 1 - above, slope

    return nets.Activation(lambda z: both(z)[0], lambda z: both(z)[1], both)


def gradient(
    net: State, x: Tensor, signs: Tensor, phi: nets.Activation, weight: Tensor | None = None, steep: bool = True
) -> tuple[Tensor, dict[str, Tensor] | None]:
    """Weighted hinge loss (B,), summed over outputs, mean over samples, and minus its gradient.

    Args:
        net: w (B, R, p), b (B, R), a (B, C, R).
        x: (B, n, p), taken in chunks.
        signs: (B, n, C) +-1.
        weight: (B, n, C) or None for 1.
        steep: False: the loss alone, None for the gradient.
    """
    total, direction = 0.0, None
    for start in range(0, x.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        z = torch.baddbmm(net["b"].unsqueeze(1), x[:, part], net["w"].transpose(1, 2))
        h, slope = phi.pair(z)
        g = torch.bmm(h, net["a"].transpose(1, 2))
        margin = 1 - signs[:, part] * g
        pull = signs[:, part] * (margin > 0)
        loss = margin.clamp_min(0)
        if weight is not None:
            pull, loss = pull * weight[:, part], loss * weight[:, part]
        share = g.shape[1] / x.shape[1]
        total = total + share * loss.sum(2).mean(1)
        if not steep:
            continue
        found = nets.two_layer_gradient(x[:, part], slope, h, net["a"], pull)
        scaled = {key: share * found[key] for key in ("w", "b", "a")}
        direction = scaled if direction is None else {key: direction[key] + scaled[key] for key in scaled}
    return total, direction


def class_weights(signs: Tensor) -> Tensor:
    """1 / (2 Pr[y = v]) of each sample and output, from the sample's own shares; signs (B, n, C)."""
    positive = (signs > 0).to(signs.dtype).mean(1, keepdim=True)
    return torch.where(signs > 0, 0.5 / positive, 0.5 / (1 - positive))


# ---------------------------------------------------------------- initial weights and the two steps


def initial(runs: Sequence[Trial], data: Data, device: torch.device) -> State:
    """Mirrored Gaussian network: s.d. 1/k for w, 1/k^2 for b, sigma~^2 / (gamma k^2) for a.

    Drawn in the coordinates of the dictionary, completed to R^d, so both coordinates give the same network.
    """
    cfg = runs[0].settings

    def draw(run: Trial) -> tuple[Tensor, Tensor, Tensor]:
        source = run.generator("init", device)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=source, device=device)

        w, b = normal(cfg.m, cfg.d) / cfg.k, normal(cfg.m) / cfg.k**2
        a = normal(cfg.outputs, cfg.m) * cfg.sigma**2 / (cfg.gamma * cfg.k**2)
        return torch.cat([w, w]), torch.cat([b, b]), torch.cat([a, -a], 1)

    w, b, a = (torch.stack(parts) for parts in zip(*map(draw, runs), strict=True))
    if data.basis is not None:
        return {"w": w @ data.basis.transpose(1, 2), "out": w[:, :, :0], "b": b, "a": a}
    return {"w": w[:, :, : cfg.D].contiguous(), "out": w[:, :, cfg.D :].contiguous(), "b": b, "a": a}


def two_steps(runs: Sequence[Trial], net: State, data: Data) -> tuple[list[dict[str, Any]], State]:
    """Steps 1 and 2 of the schedule, whole training set as one batch, neuron noise averaged out.

    Step 1: eta1 = gamma^2 sigma~ / (k m^3), penalty lambda_w = 1/(2 eta1) on w, which wipes the old w exactly
    (so it is left out here: in float32 the difference of the two would drown the gradient). Step 2: eta = 1,
    penalties 1/2 on w and a, which wipes both. Biases are never penalised. The noise is k^-1.5, as in the lemmas
    (Theorem 26 has k^-2, and another eta1: see `Settings.eta1`). Residual variant: step 1 leaves
    w = G / max |G_i| + r w_0 / E|w_0| with G minus the gradient, and a is scaled down before step 2.

    Returns:
        Rows at steps 0, 1, 2; the state after step 2, with w, out, b after step 1 as w1, out1, b1.
    """
    cfg: Settings = runs[0].settings
    phi = smoothed(cfg.k**-1.5 if cfg.noise else 0.0)
    weight = class_weights(data.train.signs) if cfg.weighted else None

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        loss, direction = gradient(state, data.train.x, data.train.signs, phi, weight, steep=t < 2)
        info = {"loss": loss}
        if t == 0:
            eta = cfg.eta1
            new = {"w": eta * direction["w"], "out": torch.zeros_like(state["out"])}
            new |= {"b": state["b"] + eta * direction["b"], "a": state["a"] + eta * direction["a"]}
            if cfg.residual is not None:
                full = torch.cat([state["w"], state["out"]], 2).norm(dim=2).mean(1).view(-1, 1, 1)
                largest = direction["w"].norm(dim=2).amax(1).view(-1, 1, 1)
                new["w"] = direction["w"] / largest + cfg.residual * state["w"] / full
                new["out"] = cfg.residual * state["out"] / full
            return state | new | {key + "1": new[key] for key in ("w", "out", "b")}, info
        if t == 1:
            new = {"w": direction["w"], "out": torch.zeros_like(state["out"])}
            new |= {"b": state["b"] + direction["b"], "a": direction["a"]}
            return state | new, info
        return state, info

    def guarded(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        if t == 1 and cfg.residual is not None:
            state = state | {"a": SMALL_A * state["a"]}
        return step(state, t)

    def measure(state: State, t: int, end: bool) -> dict[str, Tensor]:
        found = alignment(state, data.u) | {"bias_sd": state["b"].std(1)}
        if t == 0:
            scale = state["a"].abs().sum((1, 2))
            g = nets.two_layer(data.test.x[:, :100], state["w"], state["a"], phi, state["b"])[0]
            found |= {"initial_output": g.abs().amax((1, 2)) / scale}
        if t == 1 and data.basis is not None:  # what of w lies outside the span of the dictionary, in norm
            outside = (state["w"] @ data.basis[:, :, cfg.D :]).norm() / state["w"].norm()
            found |= {"outside": outside.expand(len(runs))}
        return found

    blank = {key + "1": torch.zeros_like(net[key]) for key in ("w", "out", "b")}
    return engine.train(runs, net | blank, guarded, measure, steps=2, record=(0, 1, 2), phase="two steps")


def kappa(w: Tensor, x: Tensor) -> Tensor:
    """(B, 1) factor that brings the r.m.s. of <w_i, x> over neurons and inputs to 1."""
    return 1 / torch.bmm(x[:, :SCALE_INPUTS], w.transpose(1, 2)).square().mean((1, 2)).sqrt().unsqueeze(1)


# ---------------------------------------------------------------- plain SGD


def batches(runs: Sequence[Trial], cfg: Settings, device: torch.device) -> Tensor:
    """(B, steps + 1, batch) int64: epochs of random order, the same for every method."""
    epochs = math.ceil((cfg.steps + 1) * cfg.batch / (cfg.n - cfg.n % cfg.batch))

    def draw(run: Trial) -> Tensor:
        source = run.generator("batches", device)
        orders = [torch.randperm(cfg.n, generator=source, device=device) for _ in range(epochs)]
        return torch.cat([order[: cfg.n - cfg.n % cfg.batch] for order in orders])

    orders = torch.stack([draw(run) for run in runs])
    return orders[:, : (cfg.steps + 1) * cfg.batch].view(len(runs), cfg.steps + 1, cfg.batch)


def descend(
    runs: Sequence[Trial],
    net: State,
    data: Data,
    order: Tensor,
    rate: Tensor | float,
    phase: str,
    *,
    start: int = 2,
    extra: dict[str, Tensor] | None = None,
) -> tuple[list[dict[str, Any]], State]:
    """Plain SGD on w, b, a from step `start` to the last; rows carry the step of the whole schedule.

    Args:
        rate: step size, a number or (B, 1, 1).
        extra: measures (B,) that go to every row.
    """
    cfg: Settings = runs[0].settings
    rate = rate if isinstance(rate, Tensor) else torch.full((len(runs), 1, 1), rate, device=order.device)
    b_rate = rate.squeeze(2)
    known = {"step_size": rate.flatten()} | (extra or {})

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        x, signs = (engine.picked(part, order[:, t]) for part in (data.train.x, data.train.signs))
        loss, down = gradient(state, x, signs, nets.TRUNCATED_RELU)
        new = {"w": state["w"] + rate * down["w"], "b": state["b"] + b_rate * down["b"]}
        return state | new | {"a": state["a"] + rate * down["a"]}, {"loss": loss}

    def measure(state: State, t: int, end: bool) -> dict[str, Tensor]:
        some = Split(*(part[:, : cfg.test] for part in vars(data.train).values()))
        found = known | alignment(state, data.u)
        for name, split in (("train", some), ("val", data.validation), ("test", data.test)):
            found[f"{name}_acc"] = accuracy(state, split, data.parity)
        return found

    marks = recorded(cfg.steps, start)
    rows, state = engine.train(runs, net, step, measure, steps=cfg.steps - start, record=marks, phase=phase)
    return [row | {"step": row["step"] + start} for row in rows], state


# ---------------------------------------------------------------- dictionary patterns: all methods


def patterns(runs: Sequence[Trial], device: torch.device) -> list[dict[str, Any]]:
    """Data, the two steps, then every method asked for; a method is a `phase` of the run table.

    network: SGD on everything after the two steps and the rescaling. two_step, one_step: the second layer
    only, on the weights after step 2 (rescaled) and step 1 (as they are, and rescaled, with the biases that
    step 2 leaves). ridge: the same features, converged second layer. rf, ntk: fixed features at the initial
    weights. linear: ridge on x. sgd: no two steps. literal: the schedule's own rate, nothing rescaled.
    reference: noise-smoothed gradient against Monte Carlo.
    """
    cfg: Settings = runs[0].settings
    data = prepare(runs, device)
    order = batches(runs, cfg, device)
    start = initial(runs, data, device)
    rows = fixed.spread(runs, "data", data.facts)
    found, state = two_steps(runs, start, data)
    rows += found

    # In the residual variant w of step 2 is linear in the a that was scaled down: undo that.
    w2 = state["w"] / (SMALL_A if cfg.residual is not None else 1.0)
    scale = kappa(w2, data.train.x)
    scaled = {"w": scale.unsqueeze(2) * w2, "b": scale * state["b"], "a": state["a"]}
    scaled["out"] = torch.zeros_like(state["out"])
    first = kappa(state["w1"], data.train.x)
    one = {"w": first.unsqueeze(2) * state["w1"], "b": scaled["b"]}
    features = {"one step, as is": {"w": state["w1"], "b": state["b1"]}, "one step": one, "two step": scaled}
    kappas = {"kappa": scale.squeeze(1)}
    rate = engine.column(runs, "rate", device, 3)
    ended, drawn = scaled, start
    if cfg.baseline_rms is not None:
        larger = cfg.baseline_rms * kappa(start["w"], data.train.x)
        drawn = start | {"w": larger.unsqueeze(2) * start["w"], "b": larger * start["b"]}
    for method in cfg.methods:
        if method == "network":
            found, ended = descend(runs, scaled, data, order, rate, "network", extra=kappas)
            rows += found
        elif method == "literal":
            total = cfg.m ** (4 / 3)
            found, _ = descend(runs, state, data, order, cfg.k**2 / (total * cfg.m ** (1 / 3)), "literal rate")
            rows += found
        elif method == "sgd":
            for value in cfg.sgd_rates:
                rows += descend(runs, drawn, data, order, value, f"plain SGD {value:g}", start=0)[0]
        elif method in ("two_step", "one_step"):
            names = ("two step",) if method == "two_step" else ("one step, as is", "one step")
            for name in names:
                rows += fixed.head(runs, features[name], data, order, rate, name, start=2)
        elif method == "ridge":
            for name, part in features.items():
                if name != "one step, as is":
                    rows += fixed.ridge(runs, part, data, f"{name}, ridge")
        elif method == "linear":
            rows += fixed.ridge(runs, None, data, "ridge on x")
        elif method in ("rf", "ntk"):
            rows += _baseline(runs, drawn, data, order, method)
        else:
            rows += _reference(runs, start, data)
    if cfg.picture and runs[0].seed == 0:
        snapshots = {0: start, 1: {"w": state["w1"], "out": state["out1"]}, 2: state, cfg.steps: ended}
        for at, net in snapshots.items():
            u = torch.cat([data.u[0], torch.zeros_like(net["out"][0, 0])])
            rows += embed(runs[0], torch.cat([net["w"][0], net["out"][0]], 1), torch.stack([u, -u]), at)
    return rows


def _baseline(runs: Sequence[Trial], start: State, data: Data, order: Tensor, method: str) -> list[dict[str, Any]]:
    """Fixed features at the initial weights. Mirror neurons move together, so half of them and twice the
    step size are the same model: f = sum over m of h_i c_i (+ a_i sigma'_i (<v_i, x> + e_i))."""
    cfg: Settings = runs[0].settings
    half = {"w": start["w"][:, : cfg.m], "b": start["b"][:, : cfg.m], "a": start["a"][:, :, : cfg.m]}
    rows = []
    for rate in cfg.rf_rates if method == "rf" else cfg.ntk_rates:
        if method == "rf":
            rows += fixed.head(runs, half, data, order, rate, f"random features {rate:g}", fold=2)
        else:
            rows += fixed.tangent(runs, half, data, order, rate, f"{TANGENT} {rate:g}", fold=2)
    return rows


def _reference(runs: Sequence[Trial], start: State, data: Data) -> list[dict[str, Any]]:
    """Relative error of the noise-smoothed gradient of w against 40,000 draws of the noise (16 neurons)."""
    cfg: Settings = runs[0].settings
    s, draws = cfg.k**-1.5, 40_000
    errors = []
    for i, run in enumerate(runs):
        x, y = data.train.x[i, :32], data.train.signs[i, :32, 0]
        w, b, a = start["w"][i, :16], start["b"][i, :16], start["a"][i, 0, :16]
        source = run.generator("reference", x.device)
        z = x @ w.T + b
        slope = torch.zeros_like(z)
        for _ in range(draws // 1000):
            noise = s * torch.randn(1000, *z.shape, generator=source, device=z.device)
            slope += nets.TRUNCATED_RELU.slope(z + noise).mean(0) * 1000 / draws
        wanted = a.unsqueeze(1) * ((slope * y.unsqueeze(1)).T @ x) / len(y)
        tiny = 1e-9  # a second layer so small that every margin is positive, as at step 0, where g = 0
        net = {"w": w[None], "b": b[None], "a": tiny * a[None, None]}
        got = gradient(net, x[None], y[None, :, None], smoothed(s))[1]["w"][0] / tiny
        errors.append(((got - wanted).norm() / wanted.norm()).item())
    return fixed.spread(runs, "reference", {"gradient_error": torch.tensor(errors)})
