"""World 3's third data model: does the structure of real inputs help? Teacher and student on small digits.

The stand-in for section 5 of the paper that needs no download: scikit-learn's 8 x 8 digits. A teacher is
trained on labelled digits L with a regulariser R that spreads its classes evenly over unlabelled Gaussian
inputs U while keeping each prediction confident. Its arg max then labels L and U alike, and a student learns
a mixture of both. All networks have one hidden layer of quadratic units, f(x) = A (W x + b)^2 + c, and Adam.

R = R1 + lambda R2, R1 = sum_j pbar_j ln pbar_j with pbar the mean softmax over U, R2 the mean entropy over U.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.feature_emergence.fixed import spread

TRAIN, TEST, CLASSES, PIXELS = 1297, 500, 10, 64
SIZES = (2, 4, 6, 9, 16, 32, 100)  # hidden units of the U-curve
BATCH, RATE, BETAS, EPSILON = 128, 1e-2, (0.9, 0.999), 1e-8  # of Adam
SQUARE = nets.Activation(torch.square, lambda z: 2 * z)
PARTS = ("w", "b", "a", "c")
MARKS = (0, 50, 100, 200, 400, 600, 800, 1000, 1250, 1500, 1750, 2000)


@cache
def bundled() -> tuple[np.ndarray, np.ndarray]:
    """All 1797 digits, (1797, 64) and their labels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.data.astype(np.float64), found.target.astype(np.int64)


def draw(run: Trial, device: torch.device) -> dict[str, Tensor]:
    """L and U of one run, standardised by the mean and s.d. of all training pixels.

    Returns:
        L, U (1297, 64), L_test, U_test (500, 64), labels, labels_test int64.
    """
    x, y = (torch.from_numpy(part).to(device) for part in bundled())
    source = run.generator("digits", device)
    order = torch.randperm(len(x), generator=source, device=device)
    x, y = x[order].float(), y[order]
    x = (x - x[:TRAIN].mean()) / x[:TRAIN].std()
    u = torch.randn(TRAIN + TEST, PIXELS, generator=source, device=device)
    if run.settings.gaussian == "matched":
        u = x[:TRAIN].mean(0) + x[:TRAIN].std(0) * u
    found = {"L": x[:TRAIN], "L_test": x[TRAIN:], "labels": y[:TRAIN], "labels_test": y[TRAIN:]}
    return found | {"U": u[:TRAIN], "U_test": u[TRAIN:]}


def initial(sources: Sequence[torch.Generator], sizes: Sequence[int], device: torch.device) -> State:
    """W ~ N(0, 1/64), A ~ N(0, 1/m), no biases; padded to the widest with zeros, which stay zero."""
    width = max(sizes)

    def make(source: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
        w = torch.randn(size, PIXELS, generator=source, device=device) / PIXELS**0.5
        a = torch.randn(CLASSES, size, generator=source, device=device) / size**0.5
        pad = torch.nn.functional.pad
        return pad(w, (0, 0, 0, width - size)), pad(a, (0, width - size))

    w, a = (torch.stack(part) for part in zip(*map(make, sources, sizes), strict=True))
    return {"w": w, "a": a, "b": torch.zeros_like(w[:, :, 0]), "c": torch.zeros_like(a[:, :, 0])}


def forward(net: State, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return nets.two_layer(x, net["w"], net["a"], SQUARE, net["b"], net["c"])


def regulariser(logits: Tensor, balance: float = 1.0, weight: float = 1.0) -> tuple[Tensor, Tensor]:
    """R = weight (R1 + balance R2) (B,), and minus its gradient in the logits (B, n, C), times n."""
    p = torch.softmax(logits, 2)
    log_p = torch.log_softmax(logits, 2)
    mean = p.mean(1, keepdim=True)
    log_mean = mean.clamp_min(1e-30).log()
    value = (mean * log_mean).sum((1, 2)) - balance * (p * log_p).sum(2).mean(1)
    slope = log_mean - balance * log_p  # the constants 1 cancel in softmax's projection
    return weight * value, -weight * p * (slope - (p * slope).sum(2, keepdim=True))


def adam(state: State, down: dict[str, Tensor], t: int) -> State:
    """One update of Adam; `down` is minus the gradient. Moments are kept beside the weights."""
    new = {}
    for key in PARTS:
        first = BETAS[0] * state["first " + key] + (1 - BETAS[0]) * down[key]
        second = BETAS[1] * state["second " + key] + (1 - BETAS[1]) * down[key].square()
        scale = (second / (1 - BETAS[1] ** (t + 1))).sqrt() + EPSILON
        new |= {"first " + key: first, "second " + key: second}
        new[key] = state[key] + RATE * first / (1 - BETAS[0] ** (t + 1)) / scale
    return state | new


def fit(
    runs: Sequence[Trial],
    purpose: str,
    sizes: Sequence[int],
    x: Tensor,
    y: Tensor,
    steps: int,
    measure: Callable[[State], dict[str, Tensor]],
    u: Tensor | None = None,
) -> tuple[list[dict[str, Any]], State]:
    """Train one network per run on x (B, n, 64), y (B, n), with R on u if given; `purpose` is the phase."""
    device = x.device
    sources = [run.generator(purpose, device) for run in runs]
    net = initial(sources, sizes, device)
    net |= {f"{moment} {key}": torch.zeros_like(net[key]) for moment in ("first", "second") for key in PARTS}

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        rows = engine.stacked(lambda g: torch.randint(x.shape[1], (BATCH,), generator=g, device=device), sources)
        part = engine.picked(x, rows)
        logits, h, z = forward(state, part)
        loss, residual = nets.softmax_residual(logits, engine.picked(y, rows))
        down = nets.two_layer_gradient(part, SQUARE.slope(z), h, state["a"], residual)
        if u is not None:
            logits, h, z = forward(state, u)
            extra, residual = regulariser(logits)
            more = nets.two_layer_gradient(u, SQUARE.slope(z), h, state["a"], residual)
            loss, down = loss + extra, {key: down[key] + more[key] for key in PARTS}
        return adam(state, down, t), {"loss": loss}

    def recorded(state: State, t: int, end: bool) -> dict[str, Tensor]:
        return measure(state)

    return engine.train(runs, net, step, recorded, steps=steps, record=MARKS, phase=purpose)


def hits(net: State, x: Tensor, y: Tensor) -> Tensor:
    """Accuracy in per cent (B,)."""
    return 100 * (forward(net, x)[0].argmax(2) == y).float().mean(1)


def select(losses: Sequence[float]) -> int:
    """The first local minimum of test loss over `SIZES`: the classical, U-shaped part ends there."""
    for i in range(len(losses) - 1):
        if losses[i] <= losses[i + 1]:
            return SIZES[i]
    return SIZES[-1]


def simulate(runs: Sequence[Trial], device: torch.device) -> list[dict[str, Any]]:
    """Teacher (by the rule if its size is not set), labels, then students on the mixture and on L alone.

    Phases: "U-curve, SIZE", "teacher", "student, mixture" and "student, digits alone" (both labelled by the
    teacher), "student, true labels" (digits alone).
    """
    cfg = runs[0].settings
    sets = [draw(run, device) for run in runs]
    s = {key: torch.stack([one[key] for one in sets]) for key in sets[0]}
    rows: list[dict[str, Any]] = []

    def plain(net: State) -> dict[str, Tensor]:
        logits = forward(net, s["L_test"])[0]
        found = {"test_loss": nets.softmax_residual(logits, s["labels_test"])[0]}
        return found | {"test_acc": hits(net, s["L_test"], s["labels_test"])}

    sizes, by_rule = [cfg.teacher] * len(runs), None
    if cfg.teacher is None:
        curve = []
        for size in SIZES:
            found, net = fit(runs, f"U-curve, {size}", [size] * len(runs), s["L"], s["labels"], cfg.steps, plain)
            rows += [row | {"size": float(size)} for row in found]
            curve.append(plain(net)["test_loss"].tolist())
        sizes = [select(losses) for losses in zip(*curve, strict=True)]
        by_rule = torch.tensor([float(size) for size in sizes])
    found, teacher = fit(runs, "teacher", sizes, s["L"], s["labels"], cfg.steps, plain, s["U"])
    rows += found
    for name in ("L", "U", "L_test", "U_test"):
        s["says " + name] = forward(teacher, s[name])[0].argmax(2)
    counts = torch.nn.functional.one_hot(s["says U"], CLASSES).sum(1).float()
    used = (teacher["w"].abs().sum(2) > 0).sum(1).float()
    facts = {"count_ratio": counts.amax(1) / counts.amin(1), "teacher_size": used}
    facts |= {} if by_rule is None else {"teacher_by_rule": by_rule}
    rows += spread(runs, "labels", facts)

    digits = round((1 - cfg.alpha) * TRAIN) if cfg.mixture == "kept" else TRAIN
    others = TRAIN - digits if cfg.mixture == "kept" else min(TRAIN, round(TRAIN * cfg.alpha / (1 - cfg.alpha)))
    mixed = [torch.cat([s[k][:, :digits], s[g][:, :others]], 1) for k, g in (("L", "U"), ("says L", "says U"))]

    def parts(net: State) -> dict[str, Tensor]:
        on_l, on_u = hits(net, s["L_test"], s["says L_test"]), hits(net, s["U_test"], s["says U_test"])
        found = {"L_acc": on_l, "U_acc": on_u, "whole_acc": (1 - cfg.alpha) * on_l + cfg.alpha * on_u}
        return found | {"test_acc": hits(net, s["L_test"], s["labels_test"])}

    students = {"student, mixture": mixed, "student, digits alone": (s["L"], s["says L"])}
    students["student, true labels"] = (s["L"], s["labels"])
    for purpose, (x, y) in students.items():
        rows += fit(runs, purpose, [cfg.student] * len(runs), x, y, cfg.student_steps, parts)[0]
    return rows
