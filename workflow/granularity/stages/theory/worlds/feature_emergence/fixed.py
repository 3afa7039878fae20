"""Models on fixed features: a second layer by SGD or ridge regression, and the tangent kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.feature_emergence.data import Data
from granularity.stages.theory.worlds.feature_emergence.measures import correct, recorded

PENALTIES = (1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # ridge, in units of the features' mean square; best on validation


def spread(runs: Sequence[Trial], phase: str, measures: dict[str, Tensor], step: int = 0) -> list[dict[str, Any]]:
    """Rows of measures (B,), one per run."""
    return [
        engine.row(run, {key: value[i].item() for key, value in measures.items()}, step, phase)
        for i, run in enumerate(runs)
    ]


def before(net: State, x: Tensor) -> Tensor:
    """w x + b, (B, n, R)."""
    return torch.baddbmm(net["b"].unsqueeze(1), x, net["w"].transpose(1, 2))


def hidden(net: State, x: Tensor) -> Tensor:
    """sigma(w x + b), (B, n, R)."""
    return nets.TRUNCATED_RELU.value(before(net, x))


def _pull(g: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean hinge loss (B,), and minus its gradient in g, divided by the number of samples."""
    loss, residual = nets.hinge_residual(g, y)
    return loss, residual / y.shape[1]


def head(
    runs: Sequence[Trial],
    net: State,
    data: Data,
    order: Tensor,
    rate: Tensor | float,
    phase: str,
    *,
    start: int = 0,
    fold: int = 1,
) -> list[dict[str, Any]]:
    """SGD on the second layer alone, from zero; rows carry the step of the whole schedule.

    Args:
        rate: a number or (B, 1, 1); multiplied by `fold`, the neurons that each feature stands for.
    """
    cfg = runs[0].settings
    count = cfg.test
    named = {"train": data.train, "val": data.validation, "test": data.test}
    h = {name: hidden(net, split.x) for name, split in named.items()}
    flat = rate.flatten().unsqueeze(1) if isinstance(rate, Tensor) else rate
    reported = flat.flatten() if isinstance(flat, Tensor) else torch.full((len(runs),), flat)

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        rows = order[:, t]
        features = engine.picked(h["train"], rows)
        g = torch.bmm(features, state["c"].unsqueeze(2)).squeeze(2)
        loss, pull = _pull(g, engine.picked(data.train.y, rows))
        down = torch.bmm(pull.unsqueeze(1), features).squeeze(1)
        return {"c": state["c"] + fold * flat * down}, {"loss": loss}

    def measure(state: State, t: int, end: bool) -> dict[str, Tensor]:
        found = {"step_size": reported}
        for name, split in named.items():
            g = torch.bmm(h[name][:, :count], state["c"].unsqueeze(2))
            found[f"{name}_acc"] = correct(g, split.y[:, :count], data.parity)
        return found

    zero = {"c": torch.zeros_like(net["b"])}
    marks = recorded(cfg.steps, start)
    rows, _ = engine.train(runs, zero, step, measure, steps=cfg.steps - start, record=marks, phase=phase)
    return [row | {"step": row["step"] + start} for row in rows]


def tangent(
    runs: Sequence[Trial], net: State, data: Data, order: Tensor, rate: float, phase: str, *, fold: int = 1
) -> list[dict[str, Any]]:
    """SGD on the network's first-order expansion at `net`, from zero perturbation, all weights moving.

    f(x) = sum_i c_i h_i(x) + a_i sigma'_i(x) (<v_i, x> + e_i), h and sigma' at the initial weights.
    """
    cfg = runs[0].settings
    a = net["a"].squeeze(1).unsqueeze(1)
    known = {}
    for name, split in (("train", data.train), ("val", data.validation), ("test", data.test)):
        z = before(net, split.x)
        known[name] = (split, nets.TRUNCATED_RELU.value(z), nets.TRUNCATED_RELU.slope(z) * a)

    def outputs(state: State, x: Tensor, h: Tensor, slope: Tensor) -> Tensor:
        inner = torch.baddbmm(state["e"].unsqueeze(1), x, state["v"].transpose(1, 2))
        return torch.bmm(h, state["c"].unsqueeze(2)).squeeze(2) + (slope * inner).sum(2)

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        split, *features = known["train"]
        x, y, h, slope = (engine.picked(part, order[:, t]) for part in (split.x, split.y, *features))
        loss, pull = _pull(outputs(state, x, h, slope), y)
        back = pull.unsqueeze(2) * slope
        new = {
            "c": state["c"] + fold * rate * torch.bmm(pull.unsqueeze(1), h).squeeze(1),
            "v": state["v"] + fold * rate * torch.bmm(back.transpose(1, 2), x),
            "e": state["e"] + fold * rate * back.sum(1),
        }
        return new, {"loss": loss}

    def measure(state: State, t: int, end: bool) -> dict[str, Tensor]:
        found = {"step_size": torch.full((len(runs),), rate)}
        for name, (split, h, slope) in known.items():
            some = slice(0, cfg.test)
            g = outputs(state, split.x[:, some], h[:, some], slope[:, some]).unsqueeze(2)
            found[f"{name}_acc"] = correct(g, split.y[:, some], data.parity)
        return found

    zero = {"c": torch.zeros_like(net["b"]), "v": torch.zeros_like(net["w"]), "e": torch.zeros_like(net["b"])}
    marks = recorded(cfg.steps, 0)
    return engine.train(runs, zero, step, measure, steps=cfg.steps, record=marks, phase=phase)[0]


def ridge(runs: Sequence[Trial], net: State | None, data: Data, phase: str) -> list[dict[str, Any]]:
    """Ridge regression of +-1 labels on the hidden units of `net`, or on x and a constant; in float64.

    The penalty is the best on validation data among `PENALTIES`; all of them for one decomposition.
    """

    def features(x: Tensor) -> Tensor:
        return torch.cat([x, torch.ones_like(x[:, :, :1])], 2) if net is None else hidden(net, x)

    train, validation, test = (features(s.x) for s in (data.train, data.validation, data.test))
    gram = sum(torch.bmm(part.transpose(1, 2), part) for part in train.double().split(10_000, dim=1)) / train.shape[1]
    target = torch.bmm(train.transpose(1, 2).double(), data.train.y.double().unsqueeze(2)) / train.shape[1]
    values, vectors = torch.linalg.eigh(gram)
    size = values.mean(1, keepdim=True).unsqueeze(2)
    best = None
    for penalty in PENALTIES:
        inverse = 1 / (values.clamp_min(0).unsqueeze(2) + penalty * size)
        c = vectors @ (inverse * (vectors.transpose(1, 2) @ target))
        measured = [
            correct(f.double() @ c, s.y, data.parity)
            for f, s in ((train, data.train), (validation, data.validation), (test, data.test))
        ]
        found = torch.stack([*measured, torch.full_like(measured[0], penalty)])
        best = found if best is None else torch.where(found[1] > best[1], found, best)
    names = ("train_acc", "val_acc", "test_acc", "penalty")
    return spread(runs, phase, dict(zip(names, best, strict=True)), runs[0].settings.steps)
