"""Study: does residual first-order signal order label spaces of four worlds (docs/findings/residual_signal.md)?"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field, ValidationError
from spaces import WORLDS, staircase

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import engine
from granularity.stages.theory import figures as draw
from granularity.stages.theory.engine import Trial
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds import (
    feature_contamination,
    feature_emergence,
    label_granularity,
    mask_reconstruction,
)

EXTENDS, NAME = "world", "residual_signal"
SAID = strict_yaml.read(Path(__file__).with_name("predictions.yaml"))
COLUMNS = ("signal", "labels")
_ALL = (feature_emergence, label_granularity, feature_contamination, mask_reconstruction)
MODULES = dict(zip(WORLDS, _ALL, strict=True))
REGISTERED = SAID["arms"]
APART = 0.05  # relative difference (of the larger score) above which two scores differ
ZERO = 1e-9
RESAMPLES = 2000


class Settings(engine.Settings):
    """One arm of one world."""

    WORLD: ClassVar[str] = NAME

    world: Literal[tuple(WORLDS)] = "feature_emergence"  # the world that the arm belongs to
    setting: dict[str, Any] = Field({})  # its settings there that differ from that world's defaults

    def rules(self) -> Iterator[tuple[bool, str]]:
        try:
            _ = self.arm
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or self.world
            yield False, f"setting: {self.world}: {where}: {first['msg']}"

    @cached_property
    def arm(self) -> engine.Settings:
        """Its settings in its world, with that world's random streams."""
        return MODULES[self.world].Settings(**self.setting, name=self.name, seeds=self.seeds, base=self.base)

    def shape(self) -> tuple:
        return (self.world, *self.arm.shape())

    def work(self) -> float:
        return self.arm.work()


SIZES = {
    size: [
        Settings(name=f"{world}: {words}", world=world, setting=part["common"] | own, seeds=seeds)
        for world, part in REGISTERED["worlds"].items()
        for words, own in part["spaces"].items()
    ]
    for size, seeds in REGISTERED["seeds"].items()
}


def simulate(runs: Sequence[Trial], device: torch.device) -> list[dict[str, Any]]:
    """Train a group of runs of one world; return a row each: its signal, its number of labels, what it learnt."""
    world = runs[0].settings.world
    space, phase, learnt, _ = WORLDS[world]
    inner = [Trial(run.settings.arm, run.seed) for run in runs]
    ends = {
        (row["setting"], row["seed"]): row
        for row in MODULES[world].simulate(inner, device)
        if row["phase"] == phase and {"end", "diverged"} & set(row["event"].split())
    }
    rows = []
    for run, trial in zip(runs, inner, strict=True):
        end, label_space = ends[trial.settings.name, trial.seed], space(trial)
        values = {"signal": staircase(label_space), "labels": label_space.chance.shape[1]}
        if end["event"] == "diverged":
            rows.append(engine.row(run, values, end["step"], event="diverged") | {"outcome": end["outcome"]})
        else:
            rows.append(engine.row(run, values | {"learnt": learnt(end)}, end["step"]))
    return rows


def seen(table: pd.DataFrame, world: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a world's arms with `signal`, `labels` (seed means), and what they learnt (arms, seeds; NaN: diverged)."""
    rows = table[table["world"] == world]
    names = rows["setting"].unique()
    scores = rows.groupby("setting")[["signal", "labels"]].mean().loc[names]
    return scores, np.array([at(table, name, "learnt") for name in names])


def pairs(score: np.ndarray, learnt: np.ndarray) -> np.ndarray:
    """Return (arms, arms): 1, -1 if the row's arm has the larger score and learnt more, less for all seeds; else 0."""
    gap = score[:, None] - score
    larger = gap > np.maximum(ZERO, APART * np.maximum(score[:, None], score))
    difference = learnt[:, None] - learnt
    return larger * ((difference > 0).all(2).astype(int) - (difference < 0).all(2))


def order(ranked: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the share of differing pairs that the score ranks right, for arm weights (resamples, arms)."""
    weight = np.ones((1, len(ranked))) if weight is None else weight
    right, differing = (np.einsum("ri,ij,rj->r", weight, part, weight) for part in (ranked > 0, ranked != 0))
    with np.errstate(invalid="ignore"):
        return right / differing


def resamples(arms: int) -> np.ndarray:
    """Return (RESAMPLES, arms): how often each arm is drawn in a bootstrap."""
    return np.random.default_rng(0).multinomial(arms, np.full(arms, 1 / arms), RESAMPLES)


def interval(values: np.ndarray, comparisons: int = 1) -> tuple[float, float]:
    """Return the bootstrap interval, jointly at 95 % with `comparisons` in all; NaN if no pair ever differs."""
    values = values[np.isfinite(values)]
    if not len(values):
        return float("nan"), float("nan")
    return tuple(np.quantile(values, (0.025 / comparisons, 1 - 0.025 / comparisons)).tolist())


def scaled(table: pd.DataFrame, world: str) -> pd.DataFrame:
    """Return `signal` relative to the finest true labels, `learnt` from coarse labels (0) to these (1), by arm."""
    scores, learnt = seen(table, world)
    mean = pd.Series(learnt.mean(1), index=scores.index)
    coarse, finest = (f"{world}: {REGISTERED['worlds'][world][name]}" for name in ("coarse", "finest"))
    gain = (mean - mean[coarse]) / (mean[finest] - mean[coarse])
    return pd.DataFrame({"signal": scores["signal"] / scores.loc[finest, "signal"], "learnt": gain})


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the preregistered predictions: per world, how well a score orders its arms; over all, one axis."""
    measured: dict[str, list[float]] = {"one axis": []}
    arms: dict[str, list[str]] = {}
    for world in WORLDS:
        names = [f"{statistic}, {world}" for statistic in ("order", "lower end", "labels", "ahead of labels", "pairs")]
        scores, learnt = seen(table, world)
        measured, arms = measured | {name: [] for name in names}, arms | {name: list(scores.index) for name in names}
        if len(scores):
            ranked, by_labels = (pairs(scores[name].to_numpy(), learnt) for name in ("signal", "labels"))
            drawn, rival = (order(ranking, resamples(len(scores))) for ranking in (ranked, by_labels))
            values = (order(ranked)[0], interval(drawn)[0], order(by_labels)[0])
            values += (interval(drawn - rival, len(WORLDS))[0], (ranked != 0).sum())
            measured |= {name: [float(value)] for name, value in zip(names, values, strict=True)}
    if set(table["world"]) == set(WORLDS):
        points = pd.concat([scaled(table, world) for world in WORLDS])
        measured["one axis"] = [float(points["signal"].corr(points["learnt"], method="spearman"))]
    return preregistered.claims(SAID, measured, dict.fromkeys(measured, int(table["seed"].nunique())), arms)


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw what each arm learnt against its signal, a panel per world; how well signal and label count order arms."""
    figure, panels = draw.canvas(3, 2, width=10.5, height=2.9)
    of_pairs, of_all = panels[4:]
    for place, (world, (*_, words)) in enumerate(WORLDS.items()):
        axes, (scores, learnt) = panels[place], seen(table, world)
        random = scores.index.str.contains("random")
        for index, (mask, label) in enumerate(((~random, "labels with a meaning"), (random, "random labels"))):
            for number, (x, values) in enumerate(zip(scores.loc[mask, "signal"], learnt[mask], strict=True)):
                draw.Points({x: values}, "" if number else label).draw(axes, index, 0)
        axes.set(xlabel="residual first-order signal, least R", ylabel=words, title=world.replace("_", " "))
        for index, (name, label) in enumerate((("signal", "residual signal"), ("labels", "number of labels"))):
            ranked = pairs(scores[name].to_numpy(), learnt)
            middle, (low, high) = order(ranked)[0], interval(order(ranked, resamples(len(scores))))
            bars = [[max(0, middle - low)], [max(0, high - middle)]]
            style = {"fmt": draw.MARKERS[index], "color": draw.COLOURS[index], "capsize": 2}
            where = place + 0.2 * (index - 0.5)
            of_pairs.errorbar(where, middle, yerr=bars, label=label if place == 0 else None, **style)
        part = scaled(table, world)
        style = {"marker": draw.MARKERS[place], "color": draw.COLOURS[place], "linestyle": "", "alpha": 0.7}
        of_all.plot(part["signal"], part["learnt"], label=world.replace("_", " "), **style)
    panels[0].legend()
    of_pairs.axhline(0.5, color="black", linestyle=":", linewidth=1)
    of_pairs.set_xticks(range(len(WORLDS)), [world.replace("_", "\n") for world in WORLDS])
    of_pairs.set(ylabel="share of pairs of arms in order", ylim=(-0.05, 1.05))
    of_pairs.legend(loc="lower left")
    of_all.set(xlabel="signal / that of the finest true labels", ylabel="learnt: coarse 0, finest 1")
    of_all.legend()
    draw.save(figure, folder, NAME, "bars: from the least to the largest seed; of shares, 95 % intervals over arms")
