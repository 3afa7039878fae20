"""The predictions on residual signal in four worlds, against what networks learnt, and their figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import figures as draw
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.residual_signal.arms import NAME, WORLDS

APART = 0.05  # two scores are told apart where they differ by more than this share of the larger
ZERO = 1e-9
RESAMPLES = 2000


def seen(table: pd.DataFrame, world: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Of a world's arms: `signal` and `labels`, means over seeds; what was learnt (arms, seeds), NaN if diverged."""
    rows = table[table["world"] == world]
    names = rows["setting"].unique()
    known = pd.DataFrame({name: rows.groupby("setting")[name].mean() for name in ("signal", "labels")}).loc[names]
    return known, np.array([at(table, name, "learnt") for name in names])


def pairs(score: np.ndarray, learnt: np.ndarray) -> np.ndarray:
    """(arms, arms): 1 where the row's arm has the larger score and learnt more, -1 where it learnt less.

    0 for pairs that scores or seeds do not tell apart: seeds do where all rank the two alike.
    """
    gap = score[:, None] - score
    larger = gap > np.maximum(ZERO, APART * np.maximum(score[:, None], score))
    difference = learnt[:, None] - learnt
    return larger * ((difference > 0).all(2).astype(int) - (difference < 0).all(2))


def order(ranked: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """(resamples,) share of the pairs told apart that the score ranks as what was learnt; NaN where there are none.

    Args:
        ranked: of :func:`pairs`.
        weight: (resamples, arms) how often each arm was drawn; left out: once.
    """
    weight = np.ones((1, len(ranked))) if weight is None else weight
    right, all_ = (np.einsum("ri,ij,rj->r", weight, part, weight) for part in (ranked > 0, ranked != 0))
    with np.errstate(invalid="ignore"):
        return right / all_


def resamples(arms: int) -> np.ndarray:
    """(RESAMPLES, arms): how often each arm is drawn in a bootstrap."""
    return np.random.default_rng(0).multinomial(arms, np.full(arms, 1 / arms), RESAMPLES).astype(float)


def interval(values: np.ndarray, comparisons: int = 1) -> tuple[float, float]:
    """Of the bootstrap, at 95 % together with as many others; NaN where no resample told a pair apart."""
    values = values[np.isfinite(values)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, (0.025 / comparisons, 1 - 0.025 / comparisons))
    return float(low), float(high)


def scaled(table: pd.DataFrame, world: str) -> pd.DataFrame:
    """`signal` in units of the finest true labels, `learnt` from coarse labels (0) to these (1); a row per arm."""
    known, learnt = seen(table, world)
    part = preregistered.read(NAME)["arms"]["worlds"][world]
    mean = pd.Series(learnt.mean(1), index=known.index)
    coarse, finest = (f"{world}: {part[name]}" for name in ("coarse", "finest"))
    gain = (mean - mean[coarse]) / (mean[finest] - mean[coarse])
    return pd.DataFrame({"signal": known["signal"] / known.loc[finest, "signal"], "learnt": gain})


def judge(table: pd.DataFrame) -> list[Claim]:
    """The predictions of the preregistration: per world, how well a score orders its arms; over all, one axis."""
    measured: dict[str, list[float]] = {"one axis": []}
    arms: dict[str, list[str]] = {}
    for world in WORLDS:
        names = [f"{what}, {world}" for what in ("order", "lower end", "labels", "ahead of labels", "pairs")]
        measured |= {name: [] for name in names}
        arms |= {name: list(table.loc[table["world"] == world, "setting"].unique()) for name in names}
        if not (table["world"] == world).any():
            continue
        known, learnt = seen(table, world)
        ranked, by_labels = (pairs(known[name].to_numpy(), learnt) for name in ("signal", "labels"))
        weight = resamples(len(known))
        drawn, other = order(ranked, weight), order(by_labels, weight)
        values = (order(ranked)[0], interval(drawn)[0], order(by_labels)[0])
        values += (interval(drawn - other, len(WORLDS))[0], int((ranked != 0).sum()))
        measured |= {name: [float(value)] for name, value in zip(names, values, strict=True)}
    if set(table["world"]) == set(WORLDS):
        points = pd.concat([scaled(table, world) for world in WORLDS])
        measured["one axis"] = [float(points["signal"].corr(points["learnt"], method="spearman"))]
    seeds = dict.fromkeys(measured, int(table["seed"].nunique()))
    return preregistered.claims(NAME, measured, seeds, arms)


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """What each arm learnt against its signal, a panel a world; how well signal and number of labels order the arms."""
    figure, panels = draw.canvas(3, 2, width=10.5, height=2.9)
    for axes, (world, (*_, words)) in zip(panels, WORLDS.items(), strict=False):
        known, learnt = seen(table, world)
        random = known.index.str.contains("random")
        for index, (some, label) in enumerate(((~random, "labels with a meaning"), (random, "random labels"))):
            if some.any():
                style = {"index": index, "line": False, "label": label}
                draw.points(axes, known.loc[some, "signal"].tolist(), list(learnt[some]), **style)
        axes.set(xlabel="residual first-order signal, least R", ylabel=words, title=world.replace("_", " "))
    panels[0].legend()
    for place, world in enumerate(WORLDS):
        if not (table["world"] == world).any():
            continue
        known, learnt = seen(table, world)
        weight = resamples(len(known))
        for index, (name, label) in enumerate((("signal", "residual signal"), ("labels", "number of labels"))):
            ranked = pairs(known[name].to_numpy(), learnt)
            middle, (low, high) = order(ranked)[0], interval(order(ranked, weight))
            bars = [[max(0, middle - low)], [max(0, high - middle)]]
            style = {"fmt": draw.MARKERS[index], "color": draw.COLOURS[index], "capsize": 2}
            where = place + 0.2 * (index - 0.5)
            panels[4].errorbar(where, middle, yerr=bars, label=label if place == 0 else None, **style)
        part = scaled(table, world)
        style = {"marker": draw.MARKERS[place], "color": draw.COLOURS[place], "linestyle": "", "alpha": 0.7}
        panels[5].plot(part["signal"], part["learnt"], label=world.replace("_", " "), **style)
    panels[4].axhline(0.5, color="black", linestyle=":", linewidth=1)
    panels[4].set_xticks(range(len(WORLDS)), [world.replace("_", "\n") for world in WORLDS])
    panels[4].set(ylabel="share of pairs of arms in order", ylim=(-0.05, 1.05))
    panels[4].legend(loc="lower left")
    panels[5].set(xlabel="signal / that of the finest true labels", ylabel="learnt: coarse 0, finest 1")
    panels[5].legend()
    draw.save(figure, folder, NAME, "bars: from the least to the largest seed; of shares, 95 % intervals over arms")
