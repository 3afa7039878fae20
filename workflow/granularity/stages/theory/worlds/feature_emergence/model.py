"""World 3: features emerge from the structure of inputs (docs/theory/feature_emergence.md).

Shi, Wei, Liang (ICLR 2022), section 3. The network is mirrored at the start (w_{m+i} = w_i, b_{m+i} = b_i, a_{m+i} =
-a_i, so g = 0). Finer labels have one output each, against the rest.

Coordinates. Inputs lie in the span of M, and so do weights once the first step has wiped the rest: `w` are their
coordinates there. `out` is the part outside, which feeds no output but counts in cosines. (With coordinates = inputs,
everything is in R^d and `out` is empty.) Shapes: B runs, n samples, p coordinates, C outputs.
"""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.worlds.feature_emergence import further, kernels, learners
from granularity.stages.theory.worlds.feature_emergence.data import prepare
from granularity.stages.theory.worlds.feature_emergence.learners import gradient
from granularity.stages.theory.worlds.feature_emergence.settings import Settings

LEAST = -87.0  # exponents below it, whose exponential is not a normal float32, take a hundred times as long
SCALE_INPUTS = 5000  # inputs on which kappa is measured
SMALL_A = 0.01  # residual variant: factor on the second layer before step 2, so that margins stay below 1


def simulate(runs: Sequence[Trial], device: torch.device) -> Rows:
    """Train one group of any of the three experiments."""
    experiments = {"patterns": patterns, "clusters": further.clusters, "digits": further.digits}
    return experiments[runs[0].settings.experiment](runs, device)


def smoothed(s: float) -> nets.Activation:
    """Return sigma averaged over neuron noise xi ~ N(0, s^2): E sigma(z + xi), and its derivative in z (1.2).

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


def class_weights(signs: Tensor) -> Tensor:
    """Return 1 / (2 Pr[y = v]) for each sample and output, from the shares in the sample; signs (B, n, C)."""
    positive = (signs > 0).to(signs.dtype).mean(1, keepdim=True)
    return torch.where(signs > 0, 0.5 / positive, 0.5 / (1 - positive))


def initial(runs: Sequence[Trial], data: State, device: torch.device) -> State:
    """Return a mirrored Gaussian network, with s.d. 1/k for w, 1/k^2 for b, sigma~^2 / (gamma k^2) for a."""
    cfg = runs[0].settings

    def draw(run: Trial) -> State:
        normal = partial(torch.randn, generator=run.generator("init", device), device=device)
        w, b = normal(cfg.m, cfg.d) / cfg.k, normal(cfg.m) / cfg.k**2
        a = normal(cfg.outputs, cfg.m) * cfg.sigma**2 / (cfg.gamma * cfg.k**2)
        return {"w": torch.cat([w, w]), "b": torch.cat([b, b]), "a": torch.cat([a, -a], 1)}

    net = engine.collated(map(draw, runs))
    w = net["w"]
    if "basis" in data:
        return net | {"w": w @ data["basis"].transpose(1, 2), "out": w[:, :, :0]}
    return net | {"w": w[:, :, : cfg.D].contiguous(), "out": w[:, :, cfg.D :].contiguous()}


def two_steps(runs: Sequence[Trial], net: State, data: State) -> tuple[Rows, State]:
    """Do steps 1 and 2 of the schedule, with the whole training set as one batch and neuron noise k^-1.5 averaged out.

    Penalties wipe the old w in step 1, and w and a in step 2, exactly, so they are left out here (in float32 the
    difference would drown the gradient). Residual variant: step 1 leaves w = G / max |G_i| + r w_0 / E|w_0| with G
    minus the gradient, and a is scaled down before step 2. Returns rows at steps 0, 1, 2, and the state after step 2;
    w1, out1, b1 are w, out, b after step 1.
    """
    cfg: Settings = runs[0].settings
    phi = smoothed(cfg.k**-1.5 if cfg.noise else 0.0)
    weight = class_weights(data["train signs"]) if cfg.weighted else None

    def step(state: State, t: int) -> tuple[State, State]:
        if t == 1 and cfg.residual is not None:
            state = state | {"a": SMALL_A * state["a"]}
        loss, direction = gradient(state, data["train x"], data["train signs"], phi, weight, steep=t < 2)
        if t == 0:
            eta = cfg.eta1
            new = {"w": eta * direction["w"], "out": torch.zeros_like(state["out"])}
            new |= {"b": state["b"] + eta * direction["b"], "a": state["a"] + eta * direction["a"]}
            if cfg.residual is not None:
                full = torch.cat([state["w"], state["out"]], 2).norm(dim=2).mean(1).view(-1, 1, 1)
                largest = direction["w"].norm(dim=2).amax(1).view(-1, 1, 1)
                new["w"] = direction["w"] / largest + cfg.residual * state["w"] / full
                new["out"] = cfg.residual * state["out"] / full
            return state | new | {key + "1": new[key] for key in ("w", "out", "b")}, {"loss": loss}
        if t == 1:
            new = {"w": direction["w"], "out": torch.zeros_like(state["out"])}
            state = state | new | {"b": state["b"] + direction["b"], "a": direction["a"]}
        return state, {"loss": loss}

    def measure(state: State, t: int, end: bool) -> State:
        measures = learners.alignment(state, data["u"]) | {"bias_sd": state["b"].std(1)}
        if t == 0:
            scale = state["a"].abs().sum((1, 2))
            g = nets.two_layer(data["test x"][:, :100], state["w"], state["a"], phi, state["b"])[0]
            measures |= {"initial_output": g.abs().amax((1, 2)) / scale}
        if t == 1 and "basis" in data:  # norm of the part of w outside the span of the dictionary
            outside = (state["w"] @ data["basis"][:, :, cfg.D :]).norm() / state["w"].norm()
            measures |= {"outside": outside.expand(len(runs))}
        return measures

    blank = {key + "1": torch.zeros_like(net[key]) for key in ("w", "out", "b")}
    return engine.train(runs, net | blank, step, measure, steps=2, record=(0, 1, 2), phase="two steps")


def kappa(w: Tensor, x: Tensor) -> Tensor:
    """Return the factor (B, 1) that scales the r.m.s. of <w_i, x> over neurons and inputs to 1."""
    return 1 / torch.bmm(x[:, :SCALE_INPUTS], w.transpose(1, 2)).square().mean((1, 2)).sqrt().unsqueeze(1)


def patterns(runs: Sequence[Trial], device: torch.device) -> Rows:
    """Draw data, do the two steps, then train every requested method; a method is a `phase` of the run table.

    network: SGD on all parameters after the two steps, rescaled. two_step, one_step: only the second layer, after step
    2 (rescaled) and step 1 (as is, and rescaled, with the biases after step 2). ridge: the same, converged. rf, ntk:
    fixed features at the initial weights; half of the mirrored neurons with twice the step size are the same model.
    linear: ridge on x. kernels: see there. sgd: without the two steps. literal: the schedule's own rate. reference:
    gradient compared with Monte Carlo.
    """
    cfg: Settings = runs[0].settings
    data, facts = prepare(runs, device)
    learn = learners.Learner(runs, data, device)
    start = initial(runs, data, device)
    rows = learners.spread(runs, "data", facts)
    results, state = two_steps(runs, start, data)
    rows += results

    # In the residual variant w after step 2 is linear in the scaled-down a: undo the scaling.
    w2 = state["w"] / (SMALL_A if cfg.residual is not None else 1.0)
    scale, first = kappa(w2, data["train x"]), kappa(state["w1"], data["train x"])
    two = {"w": scale.unsqueeze(2) * w2, "b": scale * state["b"], "a": state["a"]}
    one, as_is = {"w": first.unsqueeze(2) * state["w1"], "b": two["b"]}, {"w": state["w1"], "b": state["b1"]}
    ended, drawn = two | {"out": torch.zeros_like(state["out"])}, start
    if cfg.baseline_rms is not None:
        larger = cfg.baseline_rms * kappa(start["w"], data["train x"])
        drawn = start | {"w": larger.unsqueeze(2) * start["w"], "b": larger * start["b"]}
    half = {"w": drawn["w"][:, : cfg.m], "b": drawn["b"][:, : cfg.m], "a": drawn["a"][:, :, : cfg.m]}
    rate = engine.column(runs, "rate", device, 3)
    for method in cfg.methods:
        if method == "network":
            results, ended = learn.descend(ended, rate, "network", kappa=scale.squeeze(1))
            rows += results
        elif method == "literal":
            literal = cfg.k**2 / (cfg.m ** (4 / 3) * cfg.m ** (1 / 3))
            rows += learn.descend(state, literal, "literal rate")[0]
        elif method == "sgd":
            for value in cfg.sgd_rates:
                rows += learn.descend(drawn, value, f"plain SGD {value:g}", start=0)[0]
        elif method == "two_step":
            rows += learn.head(two, rate, "two step", start=2)
        elif method == "one_step":
            rows += learn.head(as_is, rate, "one step, as is", start=2)
            rows += learn.head(one, rate, "one step", start=2)
        elif method == "ridge":
            rows += learn.ridge(one, "one step, ridge") + learn.ridge(two, "two step, ridge")
        elif method == "linear":
            rows += learn.ridge(None, "ridge on x")
        elif method == "kernels":
            rows += learn.ridge(half, "random features, ridge") + kernels.kernels(runs, data)
        elif method == "rf":
            for value in cfg.rf_rates:
                rows += learn.head(half, value, f"random features {value:g}", fold=2)
        elif method == "ntk":
            for value in cfg.ntk_rates:
                rows += learn.tangent(half, value, f"tangent kernel {value:g}", fold=2)
        else:
            rows += _reference(runs, start, data)
    if cfg.picture and runs[0].seed == 0:
        snapshots = {0: start, 1: {"w": state["w1"], "out": state["out1"]}, 2: state, cfg.steps: ended}
        for at, net in snapshots.items():
            u = torch.cat([data["u"][0], torch.zeros_like(net["out"][0, 0])])
            vectors = torch.cat([net["w"][0], net["out"][0]], 1)
            rows += learners.embed(runs[0], vectors, torch.stack([u, -u]), at)
    return rows


def _reference(runs: Sequence[Trial], start: State, data: State) -> Rows:
    """Return the relative error of the noise-smoothed gradient of w against 40,000 draws of the noise (16 neurons)."""
    cfg: Settings = runs[0].settings
    s, draws = cfg.k**-1.5, 40_000
    errors = []
    for i, run in enumerate(runs):
        x, y = data["train x"][i, :32], data["train signs"][i, :32, 0]
        w, b, a = start["w"][i, :16], start["b"][i, :16], start["a"][i, 0, :16]
        source = run.generator("reference", x.device)
        z = x @ w.T + b
        slope = torch.zeros_like(z)
        for _ in range(draws // 1000):
            noise = s * torch.randn(1000, *z.shape, generator=source, device=z.device)
            slope += nets.TRUNCATED_RELU.slope(z + noise).mean(0) * 1000 / draws
        expected = a.unsqueeze(1) * ((slope * y.unsqueeze(1)).T @ x) / len(y)
        tiny = 1e-9  # a second layer so small that every margin is positive, as at step 0, where g = 0
        net = {"w": w[None], "b": b[None], "a": tiny * a[None, None]}
        got = gradient(net, x[None], y[None, :, None], smoothed(s))[1]["w"][0] / tiny
        errors.append(((got - expected).norm() / expected.norm()).item())
    return learners.spread(runs, "reference", {"gradient_error": torch.tensor(errors)})
