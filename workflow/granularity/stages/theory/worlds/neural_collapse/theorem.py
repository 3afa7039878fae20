"""World 2, second model: the setting of Theorem 7.1, with a fixed head (docs/theory/neural_collapse.md).

n/4 samples of each of four clusters, y = +1 for clusters 0 and 1, -1 for 2 and 3, w ~ N(0, omega^2 I), gradient descent
W += eta / (2n) sum_i y_i act'(w . x_i) x_i.

Time is the clock s = eta tau^3 omega t / 8: a unit with w . mu = tau omega leaves the cubic part of `act` near s = 1.
The theorem's time, T = Theta(1 / (eta omega^3)) steps, is s = tau^3 / (8 omega^2), at least 1e8, which no run reaches.
But once every unit is linear on every sample, all weights move at constant velocity, and `later` is exact. The
appendix's time, about 1 / (2 eta tau^3 omega sqrt(log 4m)), is s < 0.04, where it exists.
"""

import math

import torch
from torch import Tensor

from granularity.base import interrupt
from granularity.stages.theory import engine
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.nets import Activation
from granularity.stages.theory.worlds.neural_collapse import measures
from granularity.stages.theory.worlds.neural_collapse.settings import Settings

# z^3/3 up to |z| = 1, z -+ 2/3 beyond (Section 7): once differentiable
ACT = Activation(lambda z: torch.where(z.abs() <= 1, z**3 / 3, z - z.sign() * (2 / 3)), lambda z: (z**2).clamp_max(1))
MARK = 0.2  # clock time between recorded steps


def clusters_of(cfg: Settings, device: torch.device | str = "cpu") -> Tensor:
    """Return (n,) int64 in 0..3."""
    return torch.arange(4, device=device).repeat_interleave(cfg.n // 4)


def draw_samples(cfg: Settings, generator: torch.Generator) -> Tensor:
    """Draw (n, D) float64, with cluster p's mean on axis p.

    `full`: D = d. `reduced`: D = n + 4, exact at any d because only inner products matter. In a rotated basis, noise
    off the mean axes has the rows of a lower triangular (Bartlett) matrix: N(0, 1) below its diagonal, and on it chi
    with d - 4 - i degrees of freedom.
    """
    device, n = generator.device, cfg.n
    if cfg.coordinates == "full":
        x = _normal(generator, n, cfg.width)
    else:
        free = cfg.dimension - 4 - torch.arange(n, device=device, dtype=torch.float64)
        chi = (2 * torch._standard_gamma(free / 2, generator=generator)).sqrt()
        x = torch.cat([_normal(generator, n, 4), _normal(generator, n, n).tril(-1) + torch.diag(chi)], 1)
    x[torch.arange(n, device=device), clusters_of(cfg, device)] += cfg.tau
    return x


def draw_weights(cfg: Settings, generator: torch.Generator) -> Tensor:
    """Draw (m, D) float64, N(0, omega^2)."""
    return cfg.omega * _normal(generator, cfg.m, cfg.width)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, device=generator.device, dtype=torch.float64)


def update(w: Tensor, x: Tensor, y: Tensor, eta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Do one step: new weights (B, m, D), loss (B,), old pre-activations (B, n, m); x (B, n, D), eta (B, 1, 1)."""
    z = x @ w.transpose(1, 2)
    loss = -(y * ACT.value(z).sum(2)).mean(1) / 2
    pull = y.unsqueeze(1) * ACT.slope(z)
    return w + eta / (2 * len(y)) * (pull.transpose(1, 2) @ x), loss, z


def kernel(x: Tensor, y: Tensor, eta: Tensor) -> Tensor:
    """Return K (B, n, n) such that one `update` adds K act'(z) to pre-activations z (B, n, m); arguments as there."""
    return eta / (2 * len(y)) * (x @ x.transpose(1, 2)) * y


def settled(z: Tensor, kernel: Tensor) -> Tensor:
    """Return whether (B,) all z (B, n, m) are in the linear part of `act`, moving away from the cubic: for good."""
    return ((z.abs() > 1) & (z * kernel.sum(2, keepdim=True) > 0)).flatten(1).all(1)


def later(z: Tensor, kernel: Tensor, steps: Tensor) -> Tensor:
    """Return pre-activations (B, n, m) after further steps (B, 1, 1); exact if `settled`, because act' = 1 there."""
    return z + steps * kernel.sum(2, keepdim=True)


def at_the_theorems_time(w: Tensor, x: Tensor, y: Tensor, eta: Tensor, runs: list[Trial], t: int) -> dict[str, Tensor]:
    """Return the ratio and the triples (see `measures.distance_ratios`) at T = 1 / (eta omega^3), each (B,) float64.

    Training continues from weights w at step t until all runs are `settled`, at most for `settle` on the clock; NaN if
    a run is not settled by then. ``settled_at`` is the clock when this was first seen; it is checked once per unit.
    """
    cfg = runs[0].settings
    interval, last = round(1 / cfg.clock_step), t + cfg.settle / cfg.clock_step
    z, added = x @ w.transpose(1, 2), kernel(x, y, eta)
    seen = torch.full((len(runs),), math.nan, dtype=torch.float64, device=w.device)
    while True:
        seen = torch.where(seen.isnan() & settled(z, added), cfg.clock_step * t, seen)
        if t >= last or not seen.isnan().any():
            break
        interrupt.stop_if_requested()
        for _ in range(interval):
            z = torch.baddbmm(z, added, ACT.slope(z))
        t += interval
    left = engine.column(runs, "theorem_steps", w.device, 3, torch.float64) - t
    ratio, _, triples = measures.distance_ratios(ACT.value(later(z, added, left)), clusters_of(cfg, w.device))
    valid = ~seen.isnan() & (left.flatten() > 0)
    late = {"late_ratio": ratio, "late_triples": triples}
    return {"settled_at": seen} | {name: torch.where(valid, value, math.nan) for name, value in late.items()}


def simulate(runs: list[Trial], device: torch.device) -> list[dict]:
    """Train a group of runs (see `engine`)."""
    cfg = runs[0].settings
    cluster = clusters_of(cfg, device)
    y = torch.where(cluster < 2, 1.0, -1.0).double()
    x = engine.stacked(lambda run: draw_samples(run.settings, run.generator("data", device)), runs)
    w = engine.stacked(lambda run: draw_weights(run.settings, run.generator("init", device)), runs)
    eta = engine.column(runs, "eta", device, 3, torch.float64)

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        new, loss, z = update(state["w"], state["x"], y, eta)
        linear = (z.abs() > 1).double().mean((1, 2))
        return state | {"w": new}, {"loss": loss, "linear": linear}

    def measure(state: State, t: int, end: bool) -> dict[str, Tensor]:
        mean, worst, triples = measures.distance_ratios(ACT.value(state["x"] @ state["w"].transpose(1, 2)), cluster)
        clock = torch.full((len(runs),), cfg.clock_step * t, dtype=torch.float64)
        values = {"clock": clock, "ratio": mean, "worst_ratio": worst, "triples": triples}
        if t == 0:
            values["input_ratio"] = measures.distance_ratios(state["x"], cluster)[0]
        if end:
            values |= at_the_theorems_time(state["w"], state["x"], y, eta, runs, t)
        return values

    record = range(0, cfg.updates, max(1, round(MARK / cfg.clock_step)))
    return engine.train(runs, {"w": w, "x": x}, step, measure, steps=cfg.updates, record=record)[0]
