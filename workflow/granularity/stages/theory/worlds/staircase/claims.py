"""The staircase's predictions against what networks learnt, and its figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import figures as draw
from granularity.stages.theory.worlds.staircase.arms import NAME

EMERGED = 90.0  # per cent of test inputs whose parity is right: parity has emerged
ZERO, NOTHING = 1e-9, 3e-3  # what counts as none, and where the figure draws it
STAIRCASE = "staircase"
PEERS = {"degree_1": "degree-1 mass", "weakest": "weakest degree-1", "information": "information", "labels": "G"}
RESAMPLES = 2000


def seen(table: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """What was known of each label space (rows: spaces), and test accuracy on parity (spaces, seeds).

    A run that diverged has learnt nothing: accuracy 0.
    """
    known = table[table["phase"] == "law"].drop_duplicates("setting").set_index("setting")
    known = known[[name for name in known if name.startswith("law_")]].rename(columns=lambda name: name[4:]).round(9)
    ends = table[(table["phase"] == "network") & table["event"].str.contains("end|diverged")]
    accuracy = ends.assign(test_acc=ends["test_acc"].fillna(0)).pivot(
        index="setting", columns="seed", values="test_acc"
    )
    return known, accuracy.loc[known.index].to_numpy()


def auc(score: np.ndarray, emerged: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Area under the curve: how often a space that emerged has the larger score; ties count half.

    Args:
        score: (spaces,).
        emerged: (spaces, seeds) bool.
        weight: (resamples, spaces), how often each space was drawn; left out: once.

    Returns:
        (resamples, seeds), NaN where all or none emerged.
    """
    weight = np.ones((1, len(score))) if weight is None else weight
    larger = (score[:, None] > score) + 0.5 * (score[:, None] == score)
    found = []
    for one in emerged.T:
        yes, no = weight * one, weight * ~one
        with np.errstate(invalid="ignore"):
            found.append(((yes @ larger) * no).sum(1) / (yes.sum(1) * no.sum(1)))
    return np.stack(found, 1)


def resamples(spaces: int) -> np.ndarray:
    """(RESAMPLES, spaces): how often each label space is drawn in a bootstrap."""
    return np.random.default_rng(0).multinomial(spaces, np.full(spaces, 1 / spaces), RESAMPLES)


def ahead(known: pd.DataFrame, emerged: np.ndarray, peer: str) -> tuple[float, float, float]:
    """AUC of the staircase minus that of another number, mean over seeds, with an interval over label spaces.

    The interval is of the bootstrap, and at 95 % holds together for all `PEERS` (Bonferroni).
    """
    weight = resamples(len(known))
    mine, other = known[STAIRCASE].to_numpy(), known[peer].to_numpy()
    drawn = (auc(mine, emerged, weight) - auc(other, emerged, weight)).mean(1)
    low, high = np.quantile(drawn, (0.025 / len(PEERS), 1 - 0.025 / len(PEERS)))
    return float((auc(mine, emerged) - auc(other, emerged)).mean()), float(low), float(high)


def judge(table: pd.DataFrame) -> list[Claim]:
    """The predictions of the preregistration; each AUC per seed, each comparison by its interval's lower end."""
    known, accuracy = seen(table)
    names = ("auc", "auc, balanced", *(f"ahead of {peer}" for peer in PEERS), "threshold", "without", "stairs")
    names += ("share", *(f"auc, {peer}" for peer in PEERS))
    measured: dict[str, list[float]] = {name: [] for name in names}
    if len(known):
        emerged = accuracy >= EMERGED
        score = known[STAIRCASE].to_numpy()
        said = score >= preregistered.read(NAME)["threshold"]
        measured["auc"] = list(auc(score, emerged)[0])
        measured["auc, balanced"] = list(auc(known["balanced"].to_numpy(), emerged)[0])
        for peer in PEERS:
            measured[f"ahead of {peer}"] = [ahead(known, emerged, peer)[1]]
            measured[f"auc, {peer}"] = list(auc(known[peer].to_numpy(), emerged)[0])
        measured["threshold"] = list(auc(said.astype(float), emerged)[0])  # of a yes or no: the balanced accuracy
        measured["without"] = list(emerged[score < ZERO].mean(0)) if (score < ZERO).any() else []
        stairs = said & (known["weakest"].to_numpy() < ZERO)
        measured["stairs"] = list(emerged[stairs].mean(0)) if stairs.any() else []
        measured["share"] = list(emerged.mean(0))
    return preregistered.claims(NAME, measured, dict.fromkeys(measured, accuracy.shape[1] if len(known) else 0))


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """Accuracy against the staircase and against degree-1 mass; the areas under the curve with intervals."""
    known, accuracy = seen(table)
    figure, panels = draw.canvas(3, width=10, height=3)
    mean, low, high = accuracy.mean(1), accuracy.min(1), accuracy.max(1)
    kinds = {STAIRCASE: ("staircase: least R on the way", "predicted"), "degree_1": ("degree-1 mass", "a rival")}
    for axes, (name, (words, title)) in zip(panels, kinds.items(), strict=False):
        flat = (known["weakest"] < ZERO) & (known[STAIRCASE] > ZERO)
        none = known[STAIRCASE] < ZERO
        for index, (some, label) in enumerate(
            ((~flat & ~none, "all coordinates at once"), (flat, "by stairs"), (none, "a stair is missing"))
        ):
            x, mine = known.loc[some, name].clip(lower=NOTHING), some.to_numpy()
            bars = [(mean - low)[mine], (high - mean)[mine]]
            style = {"fmt": draw.MARKERS[index], "color": draw.COLOURS[index], "markersize": 3}
            axes.errorbar(x, mean[mine], yerr=bars, elinewidth=0.4, alpha=0.6, label=label, **style)
        axes.axhline(EMERGED, color="black", linestyle=":", linewidth=1)
        axes.set(xscale="log", xlabel=words, ylim=(40, 103), title=f"what label spaces taught: {title}")
        axes.set_xticks([NOTHING, 0.01, 0.03, 0.1, 0.3], ["0", "0.01", "0.03", "0.1", "0.3"])
        axes.minorticks_off()
    panels[0].annotate("taught above this line", (0.0045, EMERGED), va="bottom", fontsize=7)
    panels[0].set_ylabel("test accuracy on parity (%)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    emerged = accuracy >= EMERGED
    names = {STAIRCASE: STAIRCASE, "balanced": "balanced", **PEERS}
    for place, name in enumerate(names):
        score = known[name].to_numpy()
        middle, drawn = auc(score, emerged).mean(), auc(score, emerged, resamples(len(known))).mean(1)
        bars = np.abs(np.quantile(drawn, (0.025, 0.975)) - middle)[:, None]
        panels[2].errorbar(place, middle, yerr=bars, fmt="o", color=draw.COLOURS[0], capsize=2)
    panels[2].set_xticks(range(len(names)), names.values(), rotation=30, ha="right")
    panels[2].axhline(0.5, color="black", linestyle=":", linewidth=1)
    panels[2].set(ylabel="area under the curve", ylim=(0.4, 1.02), title="how well each number predicts (0.5: a coin)")
    draw.save(figure, folder, NAME, "left: means over seeds, from the least to the largest; right: 95 % intervals")
