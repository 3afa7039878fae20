"""World 1 without feature learning: only the last layer is trained, on fixed features that all labels share.

`patches`: the sum of a sample's patches, so the model is linear. `random`: relu(<w_r, x_p> - threshold) for random w_r,
summed over patches, as in a lazy network whose neurons do not move. Heads are only the sum and the maximum over a
superclass's labels, because no neuron belongs to one label.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.worlds.label_granularity.measures import Evaluation


class FixedEvaluation(Evaluation):
    """Responses and accuracies of a last layer a (B, C, R) on features of patches; there are no weights to measure."""

    def __init__(self, *args: Any, features: Callable[[Tensor], Tensor]):
        super().__init__(*args)
        self.features = features

    def _heads(self, state: State, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        F = torch.bmm(state["a"], self.features(x))
        by = F.view(F.shape[0], 2, self.g, -1)
        return F, {"sum": by.sum(2), "max": by.amax(2)}

    def _weights(self, state: State) -> dict[str, Tensor]:
        return {}

    _sets = _initial_sets = _weights


def simulate(runs: list[Trial], device: torch.device, draw_samples: Callable, draw_labels: Callable) -> Rows:
    """Train the last layers of a group of runs from zero, on the same batches as networks."""
    cfg, settings = runs[0].settings, [run.settings for run in runs]
    eta = engine.column(runs, "eta", device, 3)
    data, names = ([run.generator(f"train {what}", device) for run in runs] for what in ("data", "labels"))
    features = _features(runs, device)

    def draw() -> State:
        x = torch.stack([draw_samples(s, s.per_subclass, one)[0] for s, one in zip(settings, data, strict=True)])
        return {"h": features(x), "y": engine.stacked(draw_labels, settings, names)}

    def direction(state: State, t: int) -> tuple[Tensor, State]:
        loss, residual = nets.softmax_residual(torch.bmm(state["a"], state["h"]).transpose(1, 2), state["y"])
        return loss, {"a": torch.bmm(state["h"], residual).transpose(1, 2) / (cfg.samples * cfg.patches)}

    descent, first = engine.sgd(direction, eta), draw()

    def step(state: State, t: int) -> tuple[State, State]:
        new, info = descent(state, t)
        return new | (first if cfg.fixed else draw()), info

    a = torch.zeros(len(runs), cfg.classes, first["h"].shape[1], device=device)
    measure = FixedEvaluation(runs, cfg.g, draw_samples, None, device, features=features).measure
    how = {"steps": cfg.steps, "record": (0, 50, 100, 200, 300), "stop_loss": cfg.stop_loss}
    return engine.train(runs, {"a": a} | first, step, measure, **how)[0]


def _features(runs: list[Trial], device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function from patches (B, N, P, d) to features (B, R, N)."""
    cfg = runs[0].settings
    if cfg.features == "patches":
        return lambda x: x.sum(2).transpose(1, 2)

    def draw(run: Trial) -> Tensor:
        source = run.generator("random features", device)
        return torch.randn(cfg.d, cfg.width, generator=source, device=device)

    w = engine.stacked(draw, runs)

    def features(x: Tensor) -> Tensor:
        z = torch.bmm(x.flatten(1, 2), w).sub_(cfg.level).relu_()
        return z.view(*x.shape[:3], -1).sum(2).transpose(1, 2) / math.sqrt(cfg.width)

    return features
