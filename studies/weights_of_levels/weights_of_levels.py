"""Study: which weight should the coarse and the fine label have in one loss, so that hard samples are learnt?

Extends the world `label_granularity`. Networks have the 2k outputs F_{y,c} of fine labels; the coarse head is their sum
over subclasses, F_y. The loss is (1 - weight) times the coarse head's cross-entropy plus weight times the fine one's.
What follows for features and errors is in :func:`path` and :func:`error_law`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from scipy import stats
from torch import Tensor

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import engine, nets
from granularity.stages.theory import figures as draw
from granularity.stages.theory.engine import Rows, Trial
from granularity.stages.theory.statements import Runs
from granularity.stages.theory.worlds import label_granularity
from granularity.stages.theory.worlds.label_granularity import model

EXTENDS, NAME = "world", "weights_of_levels"
SAID = strict_yaml.read(Path(__file__).with_name("predictions.yaml"))


class Settings(label_granularity.Settings):
    """How much the fine label weighs."""

    WORLD: ClassVar[str] = NAME

    weight: float = Field(1.0, ge=0, le=1)  # of the fine label's cross-entropy; the coarse label has the rest

    def rules(self) -> Iterator[tuple[bool, str]]:
        yield from super().rules()
        fine = self.labels == "class" and self.g == self.k > 1 and self.features == "learnt"
        yield fine, f"g: the outputs are those of fine labels, g = k = {self.k} > 1, learnt; g is {self.g}"


SIZES = {"quick": [Settings(name=name, **SAID["setting"] | arm) for name, arm in SAID["arms"].items()]}


def mixed(weight: Tensor) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the loss of `model.simulate` for weights (B,) of the fine label."""
    w = weight.view(-1, 1, 1)

    def loss(F: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        k = F.shape[2] // 2
        fine, down = nets.softmax_residual(F, y)
        coarse, up = nets.softmax_residual(F.unflatten(2, (2, k)).sum(3), y // k)
        return (1 - weight) * coarse + weight * fine, (1 - w) * up.repeat_interleave(k, 2) + w * down

    return loss


def simulate(runs: list[Trial], device: torch.device) -> Rows:
    """Train a group of runs (see `engine`); add to the last row of each what :func:`rises` and :func:`errors` find."""
    rows = model.simulate(runs, device, mixed(engine.column(runs, "weight", device)))
    of = {(run.settings.name, run.seed): run.settings for run in runs}
    start: dict[tuple[str, int], dict] = {}
    for row in rows:
        run = row["setting"], row["seed"]
        first = start.setdefault(run, row)
        if "end" in row["event"]:
            row |= rises(of[run], first, row) | errors(row)
    return rows


def rises(cfg: Settings, first: dict, last: dict) -> dict[str, float]:
    """Return how much features and responses to hard samples grew, in units of the coarse labels' growth in phase I.

    The unit of weights is eta s*/(4 P) per step for the common feature, and 1/k of that for a subclass; of responses,
    n_act s* times the latter.
    """
    unit = cfg.eta * cfg.signal / (4 * cfg.patches) * cfg.steps
    units = {"common_weight": unit, "subclass_weight": unit / cfg.k}
    units |= dict.fromkeys(("hard_label_sibling", "hard_own"), unit / cfg.k * cfg.n_act * cfg.signal)
    return {f"rise_{name}": (last[name] - first[name]) / by for name, by in units.items()}


def errors(last: dict) -> dict[str, float]:
    """Return the share of hard samples with four distractors that each superclass head gets wrong."""
    return {f"error_{head}": 1 - last[f"accuracy_{head}_4_distractors"] for head in ("sum", "pruned", "max")}


# ---------------------------------------------------------------- the law


def path(cfg: Settings) -> dict[str, np.ndarray]:
    """Return own, sibling and common (steps + 1,): what a class's neurons for a feature add to its response.

    The features are the own subclass and a sibling's, on samples that show them, and the common one. Samples have
    expected numbers of patches, and initial weights are small.
    """
    k, w, common, P = cfg.k, cfg.weight, cfg.signal, cfg.patches
    sub = common * (1 - common / P)
    rate = cfg.eta * cfg.n_act / (2 * P)
    rise = 1 - min(cfg.beta, cfg.clip)
    own = sibling = shared = 0.0
    found = [(own, sibling, shared)]
    for _ in range(cfg.steps):
        coarse = 1 / (1 + np.exp(k * shared + own + (k - 1) * sibling))
        exps = np.exp([shared + own, shared + sibling, 0.0])
        p_own, p_sibling, _ = exps / (exps @ [1, k - 1, k])
        pull = (1 - w) * coarse - w * p_sibling
        dead = sibling == 0 and pull <= 0  # below its threshold for good
        own += rise * rate * sub**2 / k * ((1 - w) * coarse + w * (1 - p_own))
        shared += rise * rate * common**2 * ((1 - w) * coarse + w * (1 - p_own - (k - 1) * p_sibling) / k)
        sibling = 0.0 if dead else max(0.0, sibling + (rise if pull > 0 else 1) * rate * sub**2 / k * pull)
        found.append((own, sibling, shared))
    return dict(zip(("own", "sibling", "shared"), np.transpose(found), strict=True))


def error_law(cfg: Settings, distractors: int, head: str = "sum") -> float:
    """Return the share of hard samples that a head gets wrong at the end, by the number of their subclass patches."""
    end = {name: float(values[-1]) for name, values in path(cfg).items()}
    sub, k = cfg.signal * (1 - cfg.signal / cfg.patches), cfg.k
    own = end["own"] + (k - 1) * end["sibling"] if head == "sum" else max(end["own"], end["sibling"])
    half = end["shared"] / cfg.signal * (0.5 - cfg.beta) / (1 - cfg.beta)  # half a common feature, above the threshold
    counts = np.arange(1, cfg.patches + 1)
    chances = stats.binom.pmf(counts, cfg.patches, sub / cfg.patches)
    margin = counts * own / sub - distractors * half * (k if head == "sum" else 1)
    return float(chances @ ((margin < 0) + 0.5 * (margin == 0)) / chances.sum())


# ---------------------------------------------------------------- what is judged


def measured(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return one value per seed for every prediction; none where an arm was not run."""
    runs, found = Runs(table), {}
    for name, said in SAID["predictions"].items():
        values = [runs(said[key], said["measure"]) for key in ("arm", "minus") if key in said]
        found[name] = values[0] - sum(values[1:]) if all(map(len, values)) else np.empty(0)
    return found


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the predictions; each is of the mean over seeds."""
    return preregistered.claims(SAID, measured(table), judged="mean")


WEIGHTS = (0, 0.25, 0.5, 0.75, 0.9, 1)
SERIES = {"step 0.2": "", "step 1.6": ", step 1.6", "step 0.025": ", step 0.025", "16 images": ", 16 images"}


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw growth in phase I, and hard errors at the end, against the weight of the fine label."""
    runs = Runs(table)
    draw.draw(folder, NAME, *panels(runs), height=2.8, width=7)


def panels(runs: Runs) -> tuple[Callable, Callable]:
    """Return both panels of the figure: growth in phase I, with the law; hard errors at the end, by step size."""
    w, k = np.linspace(0, 1, 50), 8
    laws = {"own subclass": 1 + w * (1 - 1 / k), "common": 1 - w * (1 - 1 / k), "sibling": 0.9 * (1 - w * (1 + 1 / k))}
    names = dict(zip(laws, ("subclass_weight", "common_weight", "hard_label_sibling"), strict=True))
    at_start = {x: f"phase I, {x:g}" for x in WEIGHTS}
    grown = [draw.points(runs, at_start, f"rise_{names[name]}", name, line=False) for name in laws]
    lines = [draw.Line(w, law, style="-") for law in laws.values()]
    words = {"xlabel": "weight of the fine label, w", "ticks": (0, 0.5, 1)}
    left = draw.panel(*grown, *lines, ylabel="growth in phase I", legend="upper left", **words)
    ends = [
        draw.points(runs, {x: f"weight {x:g}{more}" for x in WEIGHTS}, "error_sum", label)
        for label, more in SERIES.items()
    ]
    return left, draw.panel(*ends, ylabel="hard error, 4 distractors", ylim=(-0.03, 1.03), legend="lower left", **words)
