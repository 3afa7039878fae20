"""World 3's second data model: a mixture of Gaussians on the corners of a hypercube, labelled by parity.

x = sum over i <= k of eps_i M_i + g, with fair signs eps_i, y = prod eps_i, g ~ N(0, sigma_r^2 (k / d) I_d).
M_i are the first k axes (the Gaussian initial weights know no direction). Trained as in "typical practice":
ReLU, hinge loss, SGD on everything, epochs of random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.feature_emergence.measures import embed

NEAR = 0.9  # cosine from which a neuron covers a centre
MARKS = 12  # recorded steps


def centres(k: int, d: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """The 2^k corners (2^k, d), and their labels (2^k,) +-1."""
    bits = torch.arange(2**k, device=device).unsqueeze(1) // 2 ** torch.arange(k, device=device) % 2
    signs = bits.float() * 2 - 1
    return torch.cat([signs, signs.new_zeros(2**k, d - k)], 1), signs.prod(1)


def draw(cfg: Any, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs (count, d) and labels (count,) +-1."""
    device = generator.device
    corners, labels = centres(cfg.k, cfg.d, device)
    which = torch.randint(2**cfg.k, (count,), generator=generator, device=device)
    noise = torch.randn(count, cfg.d, generator=generator, device=device)
    return corners[which] + cfg.sigma_r * (cfg.k / cfg.d) ** 0.5 * noise, labels[which]


def coverage(w: Tensor, corners: Tensor) -> dict[str, Tensor]:
    """Coverage of the centres (2^k, d) by neurons (B, m, d)."""
    unit = torch.nn.functional.normalize(w, dim=2)
    cos = unit @ torch.nn.functional.normalize(corners, dim=1).T
    best = cos.amax(1)
    return {
        "covered": (best > NEAR).to(w.dtype).mean(1),
        "lowest_best": best.amin(1),
        "near_share": (cos.amax(2) > NEAR).to(w.dtype).mean(1),
    }


def simulate(runs: Sequence[Trial], device: torch.device) -> list[dict[str, Any]]:
    """w ~ N(0, 0.01 / d), b = 0, a ~ N(0, 1/m); `rate`, `batch` and `steps` are the settings'."""
    cfg = runs[0].settings
    sets = {}
    for name, count in (("train", cfg.n), ("test", cfg.test)):
        drawn = [draw(run.settings, count, run.generator(f"clusters {name}", device)) for run in runs]
        sets[name] = tuple(torch.stack(parts) for parts in zip(*drawn, strict=True))
    sources = [run.generator("clusters init", device) for run in runs]
    net = {
        "w": engine.stacked(lambda g: torch.randn(cfg.m, cfg.d, generator=g, device=device), sources)
        * 0.1
        / cfg.d**0.5,
        "a": engine.stacked(lambda g: torch.randn(1, cfg.m, generator=g, device=device), sources) / cfg.m**0.5,
        "b": torch.zeros(len(runs), cfg.m, device=device),
    }
    orders = [run.generator("clusters order", device) for run in runs]
    rate = engine.column(runs, "rate", device, 3)
    corners, _ = centres(cfg.k, cfg.d, device)
    cycle, order = cfg.n // cfg.batch, None

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        nonlocal order
        if t % cycle == 0:
            order = engine.stacked(lambda g: torch.randperm(cfg.n, generator=g, device=device), orders)
        rows = order[:, t % cycle * cfg.batch : (t % cycle + 1) * cfg.batch]
        x, y = (engine.picked(part, rows) for part in sets["train"])
        g, h, z = nets.two_layer(x, state["w"], state["a"], nets.RELU, state["b"])
        loss, residual = nets.hinge_residual(g.squeeze(2), y)
        down = nets.two_layer_gradient(x, nets.RELU.slope(z), h, state["a"], residual.unsqueeze(2))
        new = {"w": state["w"] + rate * down["w"], "a": state["a"] + rate * down["a"]}
        return new | {"b": state["b"] + rate.squeeze(2) * down["b"]}, {"loss": loss}

    def measure(state: State, t: int, end: bool) -> dict[str, Tensor]:
        x, y = sets["test"]
        g = nets.two_layer(x, state["w"], state["a"], nets.RELU, state["b"])[0].squeeze(2)
        return coverage(state["w"], corners) | {"test_acc": 100 * (g * y > 0).float().mean(1)}

    marks = range(0, cfg.steps + 1, max(1, cfg.steps // MARKS))
    rows, end = engine.train(runs, net, step, measure, steps=cfg.steps, record=marks, phase="clusters")
    if cfg.picture and runs[0].seed == 0:
        for at, state in ((0, net), (cfg.steps, end)):
            rows += embed(runs[0], state["w"][0], corners, at)
    return rows
