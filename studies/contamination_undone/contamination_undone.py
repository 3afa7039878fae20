"""Study: is feature contamination undone by removing directions in which unlabelled inputs differ?

Extends the world `feature_contamination`. Out of distribution the background is shifted by -1; `unlabelled` inputs of
each kind are at hand. With v the estimated directions and V = I - v v^T, `gradients` trains with gradients V dL/dw,
`inputs` on V x, `test` replaces w by V w after training, and `rescaled` restores the mean margin after that. `coral`
adds a penalty on the mean hidden features of the two kinds. What follows for the risk is in :func:`law`.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from scipy import optimize, stats
from torch import Tensor

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import engine
from granularity.stages.theory import figures as draw
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.statements import Runs
from granularity.stages.theory.worlds import feature_contamination
from granularity.stages.theory.worlds.feature_contamination import measures, model

EXTENDS, NAME = "world", "contamination_undone"
SAID = strict_yaml.read(Path(__file__).with_name("predictions.yaml"))
GROUPS = {1: (0,) * 8, 2: (0, 0, 0, 0, 0, 0, 1, 1), 4: (0, 0, 0, 0, 1, 1, 2, 3)}  # the block that each group shifts
PERMUTATIONS = 20  # of the inputs over groups; a direction is kept above the largest singular value of all
KEPT = ("rank", "overlap", "imbalance")


class Settings(feature_contamination.Settings):
    """Which directions, estimated from how many inputs, are removed from what."""

    WORLD: ClassVar[str] = NAME

    method: Literal["none", "gradients", "inputs", "test", "rescaled", "coral"] = "none"
    unlabelled: engine.Count = 1000  # inputs of each kind, without labels
    # Directions: the true one; the difference of means, or that divided by the covariance (plus its mean eigenvalue);
    # singular vectors of the differences, of means or of second moments, of eight groups from inputs in distribution.
    subspace: Literal["true", "mean", "whitened", "means", "moments"] = "mean"
    blocks: Literal[1, 2, 4] = 1  # parts of the background; a group of unlabelled inputs shifts one of them
    moved: engine.Natural = 0  # core features that the shift moves too,
    how: Literal["added", "flipped"] = "added"  # by -1, or by -y
    plus: float = Field(0.5, gt=0, lt=1)  # share of y = +1 among the unlabelled inputs out of distribution
    penalty: engine.NonNegative = 0.0  # of `coral`

    def rules(self) -> Iterator[tuple[bool, str]]:
        yield from super().rules()
        yield self.moved <= self.d_core, f"moved: there are d_core = {self.d_core} core features, not {self.moved}"
        yield self.d_bg % self.blocks == 0, f"blocks: must divide d_bg = {self.d_bg}, but {self.blocks} does not"
        few = self.subspace in ("means", "moments") and self.unlabelled < 2 * len(GROUPS[1])
        yield not few, f"unlabelled: the differences of eight groups need 16 inputs, not {self.unlabelled}"
        yield self.task == "classification", "task: is classification here"


SIZES = {"quick": [Settings(name=name, **SAID["setting"] | one) for name, one in SAID["arms"].items()]}


def shifted(cfg: Settings, z: Tensor, y: Tensor, groups: Tensor | None = None) -> Tensor:
    """Samples out of distribution: all of the background shifted by -1, or the block of each sample's group."""
    z, core = z.clone(), cfg.d_core
    block = torch.arange(cfg.d_bg, device=z.device) // (cfg.d_bg // cfg.blocks)
    z[:, core:] -= 1.0 if groups is None or cfg.blocks == 1 else (block == groups.unsqueeze(1)).float()
    z[:, : cfg.moved] -= y.unsqueeze(1) if cfg.how == "flipped" else 1.0
    return z


def inputs(cfg: Settings, stream: torch.Generator) -> tuple[Tensor, Tensor, Tensor, float]:
    """Unlabelled inputs in and out of distribution, the latter's groups, and half the difference of mean labels."""
    n = cfg.unlabelled
    one, two = (model.draw_samples(cfg, n, stream) for _ in range(2))
    y = torch.where(torch.rand(n, generator=stream, device=stream.device) < cfg.plus, 1.0, -1.0)
    two["z"][:, : cfg.d_core] *= (two["y"] * y).unsqueeze(1)
    group = torch.arange(n, device=y.device) % len(GROUPS[1])
    block = torch.tensor(GROUPS[cfg.blocks], device=y.device)[group]
    return one["z"], shifted(cfg, two["z"], y, block), group, (one["y"].mean() - y.mean()).item() / 2


def differences(x: Tensor, group: Tensor, moments: bool) -> Tensor:
    """(d0, columns): mean, or second moment, of each group from 1 minus that of group 0."""
    own = [x[group == g] for g in range(len(GROUPS[1]) + 1)]
    found = [one.T @ one / len(one) if moments else one.mean(0).unsqueeze(1) for one in own]
    return torch.cat([one - found[0] for one in found[1:]], 1)


def directions(cfg: Settings, x: Tensor, other: Tensor, group: Tensor, stream: torch.Generator) -> Tensor:
    """(d0, rank) orthonormal: the directions in which `other` differs from `x`, as `subspace` says."""
    if cfg.subspace == "true":
        found = torch.zeros(cfg.d0, 1, device=x.device)
        found[cfg.d_core :] = 1
        return found / found.norm()
    if cfg.subspace in ("mean", "whitened"):
        found = (x.mean(0) - other.mean(0)).unsqueeze(1)
        if cfg.subspace == "whitened":
            centred = torch.cat((x - x.mean(0), other - other.mean(0)))
            covariance = centred.T @ centred / len(centred)
            ridge = torch.eye(cfg.d0, device=x.device) * covariance.trace() / cfg.d0
            found = torch.linalg.solve(covariance + ridge, found)
        return found / found.norm()
    moments, of = cfg.subspace == "moments", torch.cat((torch.zeros_like(group), group + 1))
    pooled = torch.cat((x, other))
    left, value, _ = torch.linalg.svd(differences(pooled, of, moments), full_matrices=False)
    null = pooled.clone()
    if not moments:
        for g in of.unique():
            null[of == g] -= null[of == g].mean(0)
    chance = 0.0
    for _ in range(PERMUTATIONS):
        order = torch.randperm(len(of), generator=stream, device=of.device)
        chance = max(chance, torch.linalg.matrix_norm(differences(null[order], of, moments), 2).item())
    return left[:, value > chance]


def simulate(runs: list[Trial], device: torch.device) -> Rows:
    """Train a group of runs (see `engine`)."""
    cfg = runs[0].settings
    update, batch, pools, kept, removed = model.updater(cfg, runs, device), model.batches(runs, device), [], [], []
    for run in runs:
        stream = run.generator("unlabelled", device)
        x, other, group, imbalance = inputs(run.settings, stream)
        v = directions(run.settings, x, other, group, stream)
        inside = v[cfg.d_core :].sum(0).square().sum().item() / cfg.d_bg
        kept.append((v.shape[1], 1 - inside, imbalance))
        removed.append(torch.eye(cfg.d0, device=device) - v @ v.T)
        pools.append({"x": x, "other": other})
    V, pool, evaluation = torch.stack(removed), engine.collated(pools), Evaluation(runs, device)
    facts = dict(zip(KEPT, torch.tensor(kept, device=device).unbind(1), strict=True))
    picks = [run.generator("picks", device) for run in runs]

    def step(state: State, t: int) -> tuple[State, State]:
        drawn = batch()
        if cfg.method == "inputs":
            drawn["z"] = drawn["z"] @ V
        loss, minus = model.descent(cfg, state, drawn)
        if cfg.method == "gradients":
            minus["w"] = minus["w"] @ V
        elif cfg.method == "coral":
            some = [torch.randperm(cfg.unlabelled, generator=one, device=device)[: cfg.batch] for one in picks]
            minus["w"] = minus["w"] - mismatch(
                state["w"], *(engine.picked(pool[key], some) for key in pool), cfg.penalty
            )
        return state | update(state, minus, t), {"loss": loss}

    def measure(state: State, t: int, end: bool) -> State:
        return evaluation.of(state, V if cfg.method in ("inputs", "test", "rescaled") else None) | facts

    return engine.train(runs, model.initial(runs, device), step, measure, steps=cfg.steps)[0]


def mismatch(w: Tensor, x: Tensor, other: Tensor, penalty: float) -> Tensor:
    """The gradient in w of penalty/m times the squared distance between mean hidden features of two sets of inputs."""
    means, slopes = [], []
    for one in (x, other):
        u = one @ w.transpose(1, 2)
        means.append(u.clamp_min(0).mean(1))
        slopes.append((u > 0).float().transpose(1, 2) @ one / one.shape[1])
    return 2 * penalty / w.shape[1] * (means[0] - means[1]).unsqueeze(2) * (slopes[0] - slopes[1])


class Evaluation(measures.Evaluation):
    """Risks in distribution, under the shift, and at its worst (a background of -1), and the weights."""

    def of(self, state: State, V: Tensor | None) -> State:
        cfg, z, y = self.cfg, self.set["z"], self.set["y"]
        P = state["w"] if V is None else state["w"] @ V
        moved = torch.stack([shifted(cfg, *one) for one in zip(z, y, strict=True)])
        worst = moved.clone()
        worst[:, :, cfg.d_core :] = -1
        if cfg.method == "rescaled":
            before, after = (self._test(state, z @ w.transpose(1, 2))["margin"] for w in (state["w"], P))
            P = P * (before / after).view(-1, 1, 1)
        found = self._weights(P, state)
        for name, x in {"id": z, "ood": moved, "worst": worst}.items():
            found |= {f"{name}_{key}": value for key, value in self._test(state, x @ P.transpose(1, 2)).items()}
        return found


# ---------------------------------------------------------------- the law


def overlap_law(n: float, d_core: int = 32, d_bg: int = 32) -> float:
    """Expected square of the sine between the mean difference of n inputs of each kind and the shift (squares 1)."""
    noise = 2 / n * (d_core / 3 + (d_bg - 1) / 12) / d_bg
    return noise / (1 + noise)


def risk_given(b: np.ndarray, d_core: int = 32, m: int = 256, decay: float = 1e-3) -> np.ndarray:
    """OOD risk where neurons keep b of their core weight as background weight; b = 0 is the risk in distribution.

    A margin mu becomes mu (1 - b)/(1 + b). In distribution it is N(mu, mu^2/(3 d_core)), decay and gate in balance.
    """
    spread = 1 / math.sqrt(3 * d_core)

    def unbalanced(mu: float) -> float:
        return stats.norm.cdf((1 - mu) / (mu * spread)) - 16 * decay * m * mu / d_core

    mu = optimize.brentq(unbalanced, 0.2, 3)
    x = (1 - mu * (1 - b) / (1 + b)) / (mu * spread)
    return mu * spread * (stats.norm.pdf(x) + x * stats.norm.cdf(x))


def risk_law(n: float, d_core: int = 32, d_bg: int = 32) -> float:
    """OOD risk after projection off an estimate from n inputs of each kind, without a fitted number.

    For class y, b is d_bg/d_core sin^2 + y e, with e half the difference of mean labels of the two kinds:
    N(0, 2 (d_core/4 + 1/12) / (n d_core)).
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    b = d_bg / d_core * overlap_law(n, d_core, d_bg) + nodes * math.sqrt(2 * (d_core / 4 + 1 / 12) / (n * d_core))
    return float(np.average(risk_given(b.clip(-0.95, 0.95), d_core), weights=weights))


# ---------------------------------------------------------------- what is judged


def measured(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Of every prediction one value per seed; empty where an arm was not run."""
    runs, found = Runs(table), {}
    for name, one in SAID["predictions"].items():
        arms = [one["arm"], *([one["minus"]] if "minus" in one else [])]
        values = [runs(arm, one.get("measure", "ood_risk")) for arm in arms]
        found[name] = (values[0] - (values[1] if len(values) > 1 else 0)) if all(map(len, values)) else np.empty(0)
    return found


def judge(table: pd.DataFrame) -> list[Claim]:
    """The predictions; each is of the mean over seeds."""
    return preregistered.claims(SAID, measured(table), quantity="ood_risk", judged="mean")


def figures(table: pd.DataFrame, folder: Path) -> None:
    """OOD risk against the number of unlabelled inputs, beside the law; and where blocks of the background differ."""
    runs, n = Runs(table), np.geomspace(10, 6000, 60)
    series: list[Any] = [draw.Line(n, [risk_law(one) for one in n], "law, gradients")]
    words = {
        "gradients": "gradients",
        "whitened": "gradients, whitened",
        "rescaled": "trained weights",
        "coral": "hidden means",
    }
    for name, label in words.items():
        arms = {one: f"{name}, n = {one}" for one in (12, 50, 200, 1000, 5000)}
        series.append(draw.points(runs, {x: arm for x, arm in arms.items() if arm in runs.settings}, "ood_risk", label))
    axes = {"ylabel": "OOD risk", "log": "xy", "ylim": (0.006, 20), "ticks": (12, 50, 200, 1000, 5000)}
    series.append(draw.Line(y=runs("ERM", "ood_risk").mean() if "ERM" in runs.settings else 1, label="ERM", style=":"))
    left = draw.panel(*series, xlabel="unlabelled inputs of each kind", legend="upper right", dodge=0.06, **axes)
    kinds = {"mean": "one mean", "means": "group means", "moments": "second moments"}
    dots = [
        draw.points(
            runs,
            {d: f"{key}, d = {d}" if (key, d) != ("mean", 1) else "gradients, n = 1000" for d in (1, 2, 4)},
            "ood_risk",
            label,
        )
        for key, label in kinds.items()
    ]
    axes = {"ylabel": "OOD risk", "ylim": (-0.03, 1), "ticks": (1, 2, 4), "xlabel": "blocks that shift apart"}
    draw.draw(folder, NAME, left, draw.panel(*dots, legend="upper right", dodge=0.08, **axes), height=2.8, width=7)
