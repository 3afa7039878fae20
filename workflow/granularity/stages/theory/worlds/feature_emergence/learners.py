"""What world 3 trains after the first two steps, and measures: networks, second layers, tangent kernels, ridge."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.worlds.feature_emergence.data import SPLITS
from granularity.stages.theory.worlds.feature_emergence.settings import Settings

Rate = Tensor | float  # a tensor is (B, 1, 1)
CHUNK = 10_000  # rows of a full batch processed at once
MARKS = (0, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 350, 400, 500, 600, 800, 1000, 1500)  # recorded
PENALTIES = (1e-8, 1e-6, 1e-4, 1e-2, 1.0)  # ridge, in units of the features' mean square; best on validation


def spread(runs: Sequence[Trial], phase: str, measures: dict[str, Tensor], step: int = 0) -> Rows:
    """Return rows of measures (B,), one per run."""
    return [
        engine.row(run, {key: value[i].item() for key, value in measures.items()}, step, phase)
        for i, run in enumerate(runs)
    ]


def correct(g: Tensor, y: Tensor, parity: Tensor) -> Tensor:
    """Return accuracy in per cent (B,) of outputs (B, n, C) on y (B, n) +-1, by sign or the largest's class (B, C)."""
    if g.shape[2] == 1:
        g = g.squeeze(2)
        return 100 * ((g * y > 0).to(g.dtype) + 0.5 * (g == 0)).mean(1)
    return 100 * (parity.gather(1, g.argmax(2)) == y).to(g.dtype).mean(1)


def alignment(net: State, u: Tensor) -> State:
    """Return cosines of neurons, w (B, R, p) and out (B, R, q), with u (B, p), without dead neurons (zero weights)."""
    norm = (net["w"].square().sum(2) + net["out"].square().sum(2)).sqrt()
    alive = norm > 0
    cos = torch.bmm(net["w"], u.unsqueeze(2)).squeeze(2) / norm.clamp_min(1e-30)
    count = alive.sum(1)
    size = cos.abs()
    relevant = (u != 0).unsqueeze(1)
    inside = (net["w"] * relevant).norm(dim=2) / norm.clamp_min(1e-30)
    return {
        "cos_max": cos.masked_fill(~alive, -1).amax(1),
        "cos_mean": (size * alive).sum(1) / count,
        "cos_min": size.masked_fill(~alive, 2).amin(1),
        "in_relevant": (inside.square() * alive).sum(1) / count,
        "positive_share": ((cos > 0) & alive).sum(1) / count,
        "alive": alive.to(cos.dtype).mean(1),
    }


def embed(run: Trial, w: Tensor, landmarks: Tensor, step: int) -> Rows:
    """Classical MDS of vectors under D_ij = sqrt(2 - 2 cos_ij), i.e. the first two principal components of unit
    vectors, with landmarks embedded alongside. Returns a row per neuron (R, p), then a row per landmark (L, p)."""
    w = w[w.norm(dim=1) > 0]
    unit = torch.cat([w, landmarks]).double()
    unit = unit / unit.norm(dim=1, keepdim=True)  # however small: step 1 leaves norms of 1e-12
    _, _, v = torch.linalg.svd(unit - unit.mean(0), full_matrices=False)
    plane = (unit - unit.mean(0)) @ v[:2].T
    plane *= torch.where(plane[len(w)] < 0, -1.0, 1.0)  # the first landmark lies to the upper right
    cos = unit @ unit[len(w) :].T
    columns = {"neuron": [*range(len(w)), *range(-1, -len(landmarks) - 1, -1)]}  # landmarks: -1, -2, ...
    columns |= {"mds_x": plane[:, 0].tolist(), "mds_y": plane[:, 1].tolist()}
    columns |= {"best_cos": cos.amax(1).tolist(), "nearest": cos.argmax(1).tolist()}
    points = (dict(zip(columns, map(float, values), strict=True)) for values in zip(*columns.values(), strict=True))
    return [engine.row(run, values, step, "neurons", "snapshot") for values in points]


def _before(net: State, x: Tensor) -> Tensor:
    return torch.baddbmm(net["b"].unsqueeze(1), x, net["w"].transpose(1, 2))


def _hidden(net: State, x: Tensor) -> Tensor:
    return nets.TRUNCATED_RELU.value(_before(net, x))


def gradient(
    net: State, x: Tensor, signs: Tensor, phi: nets.Activation, weight: Tensor | None = None, steep: bool = True
) -> tuple[Tensor, State | None]:
    """Return the hinge loss (B,), summed over outputs, and minus its gradient if `steep`; signs, weights (B, n, C)."""
    total, direction = 0.0, None
    for start in range(0, x.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        h, slope = phi.pair(_before(net, x[:, part]))
        g = torch.bmm(h, net["a"].transpose(1, 2))
        margin = 1 - signs[:, part] * g
        pull = signs[:, part] * (margin > 0)
        loss = margin.clamp_min(0)
        if weight is not None:
            pull, loss = pull * weight[:, part], loss * weight[:, part]
        share = g.shape[1] / x.shape[1]
        total = total + share * loss.sum(2).mean(1)
        if steep:
            gradients = nets.two_layer_gradient(x[:, part], slope, h, net["a"], pull, ("w", "b", "a"))
            scaled = {key: share * value for key, value in gradients.items()}
            direction = scaled if direction is None else {key: direction[key] + scaled[key] for key in scaled}
    return total, direction


def batches(runs: Sequence[Trial], device: torch.device, purpose: str = "batches") -> Tensor:
    """Return (B, steps + 1, batch) int64: epochs in random order, the same for every method."""
    cfg: Settings = runs[0].settings
    whole = cfg.n - cfg.n % cfg.batch
    epochs = math.ceil((cfg.steps + 1) * cfg.batch / whole)

    def draw(run: Trial) -> Tensor:
        source = run.generator(purpose, device)
        orders = [torch.randperm(cfg.n, generator=source, device=device)[:whole] for _ in range(epochs)]
        return torch.cat(orders)[: (cfg.steps + 1) * cfg.batch].view(cfg.steps + 1, cfg.batch)

    return torch.stack([draw(run) for run in runs])


class Learner:
    """Models of a group of runs on its data, trained on the same batches; rows carry the step of the whole schedule."""

    def __init__(self, runs: Sequence[Trial], data: State, device: torch.device):
        self.runs, self.data, self.cfg = runs, data, runs[0].settings
        self.order = batches(runs, device)

    def _learn(
        self,
        state: State,
        sets: dict[str, tuple[Tensor, ...]],
        rate: Rate,
        phase: str,
        outputs: Callable[..., Tensor],
        direction: Callable[..., tuple[Tensor, State]],
        measure: Callable[[State], State] = lambda state: {},
        start: int = 0,
        fold: int = 1,
    ) -> tuple[Rows, State]:
        """Run plain SGD from step `start` of the schedule to the last, at `fold` (neurons per feature) times `rate`.

        `sets`: "train", "val" and "test" samples: labels (B, n), then the other arguments of ``outputs(state, ...) ->
        (B, n, C)`` and ``direction(state, y, ...) -> loss (B,), minus its gradient``.
        """
        cfg, order = self.cfg, self.order
        rate = rate if isinstance(rate, Tensor) else torch.full((len(self.runs), 1, 1), rate, device=order.device)

        def step(state: State, t: int) -> tuple[Tensor, State]:
            return direction(state, *(engine.picked(part, order[:, t]) for part in sets["train"]))

        def measured(state: State, t: int, end: bool) -> State:
            measures = {"step_size": rate.flatten()} | measure(state)
            for name, parts in sets.items():
                y, *inputs = (part[:, : cfg.test] for part in parts)
                measures[f"{name}_acc"] = correct(outputs(state, *inputs), y, self.data["parity"])
            return measures

        marks = [mark - start for mark in MARKS if start <= mark <= cfg.steps]
        how = {"steps": cfg.steps - start, "record": marks, "phase": phase, "start": start}
        return engine.train(self.runs, state, engine.sgd(step, fold * rate), measured, **how)

    def descend(self, net: State, rate: Rate, phase: str, start: int = 2, **more: Tensor) -> tuple[Rows, State]:
        """Run plain SGD on w, b, a; add the measures `more` (B,) to every row."""

        def outputs(state: State, x: Tensor, signs: Tensor) -> Tensor:
            return nets.two_layer(x, state["w"], state["a"], nets.TRUNCATED_RELU, state["b"])[0]

        def direction(state: State, y: Tensor, x: Tensor, signs: Tensor) -> tuple[Tensor, State]:
            return gradient(state, x, signs, nets.TRUNCATED_RELU)

        def measure(state: State) -> State:
            return more | alignment(state, self.data["u"])

        sets = {name: tuple(self.data[f"{name} {part}"] for part in ("y", "x", "signs")) for name in SPLITS}
        return self._learn(net, sets, rate, phase, outputs, direction, measure, start)

    def head(self, net: State, rate: Rate, phase: str, **how: int) -> Rows:
        """Run SGD on only the second layer, from zero."""

        def outputs(state: State, h: Tensor) -> Tensor:
            return torch.bmm(h, state["c"].unsqueeze(2))

        def direction(state: State, y: Tensor, h: Tensor) -> tuple[Tensor, State]:
            loss, residual = nets.hinge_residual(outputs(state, h).squeeze(2), y)
            return loss, {"c": torch.bmm((residual / y.shape[1]).unsqueeze(1), h).squeeze(1)}

        sets = {name: (self.data[f"{name} y"], _hidden(net, self.data[f"{name} x"])) for name in SPLITS}
        return self._learn({"c": torch.zeros_like(net["b"])}, sets, rate, phase, outputs, direction, **how)[0]

    def tangent(self, net: State, rate: Rate, phase: str, fold: int = 1) -> Rows:
        """Run SGD on sum_i c_i h_i(x) + a_i sigma'_i(x) (<v_i, x> + e_i), from zero, with h and sigma' of `net`."""
        sets, phi = {}, nets.TRUNCATED_RELU
        for name in SPLITS:
            x = self.data[f"{name} x"]
            z = _before(net, x)
            sets[name] = self.data[f"{name} y"], x, phi.value(z), phi.slope(z) * net["a"]

        def outputs(state: State, x: Tensor, h: Tensor, slope: Tensor) -> Tensor:
            inner = torch.baddbmm(state["e"].unsqueeze(1), x, state["v"].transpose(1, 2))
            return torch.bmm(h, state["c"].unsqueeze(2)) + (slope * inner).sum(2, keepdim=True)

        def direction(state: State, y: Tensor, x: Tensor, h: Tensor, slope: Tensor) -> tuple[Tensor, State]:
            loss, residual = nets.hinge_residual(outputs(state, x, h, slope).squeeze(2), y)
            pull = residual / y.shape[1]
            back = pull.unsqueeze(2) * slope
            down = {"c": torch.bmm(pull.unsqueeze(1), h).squeeze(1)}
            return loss, down | {"v": torch.bmm(back.transpose(1, 2), x), "e": back.sum(1)}

        zero = {key: torch.zeros_like(net[like]) for key, like in (("c", "b"), ("v", "w"), ("e", "b"))}
        return self._learn(zero, sets, rate, phase, outputs, direction, fold=fold)[0]

    def ridge(self, net: State | None, phase: str) -> Rows:
        """Do ridge regression, in float64, on the hidden units of `net`, or on x and 1, with the penalty that is best
        on validation data.
        """

        def features(x: Tensor) -> Tensor:
            return torch.cat([x, torch.ones_like(x[:, :, :1])], 2) if net is None else _hidden(net, x)

        sets = [(features(self.data[f"{name} x"]), self.data[f"{name} y"]) for name in SPLITS]
        train, y = sets[0]
        pieces = train.double().split(CHUNK, dim=1)
        gram = sum(torch.bmm(part.transpose(1, 2), part) for part in pieces) / train.shape[1]
        target = torch.bmm(train.transpose(1, 2).double(), y.double().unsqueeze(2)) / train.shape[1]
        values, vectors = torch.linalg.eigh(gram)
        size = values.mean(1, keepdim=True).unsqueeze(2)
        best = None
        for penalty in PENALTIES:
            inverse = 1 / (values.clamp_min(0).unsqueeze(2) + penalty * size)
            c = vectors @ (inverse * (vectors.transpose(1, 2) @ target))
            measured = [correct(f.double() @ c, y, self.data["parity"]) for f, y in sets]
            scores = torch.stack([*measured, torch.full_like(measured[0], penalty)])
            best = scores if best is None else torch.where(scores[1] > best[1], scores, best)
        names = ("train_acc", "val_acc", "test_acc", "penalty")
        return spread(self.runs, phase, dict(zip(names, best, strict=True)), self.cfg.steps)
