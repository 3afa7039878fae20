"""Study: which label spaces teach parity can be predicted before training (docs/findings/parity.md).

Extends the world `feature_emergence`, whose `spaces.law` computes what is known of a label space before training.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import engine
from granularity.stages.theory import figures as draw
from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds.feature_emergence import model, settings, spaces
from granularity.stages.theory.worlds.feature_emergence.spaces import PATTERNS, count, subparity

EXTENDS, NAME = "world", "staircase"
SAID = strict_yaml.read(Path(__file__).with_suffix(".yaml"))
COLUMNS = ("test_acc",)
Draw = np.random.Generator


class Settings(settings.Settings):
    """A label space, as a table."""

    def rules(self) -> Iterator[tuple[bool, str]]:
        yield from super().rules()
        yield bool(self.table), "table: must be set, with labels 'table'"


def _some(draw: Draw, least: int, most: int) -> list[int]:
    """Return a random subset of coordinates, of random size."""
    return list(draw.permutation(spaces.K)[: draw.integers(least, most + 1)])


def _threshold(draw: Draw) -> np.ndarray:
    bits = _some(draw, 2, 5)
    return (count(bits) >= draw.integers(1, len(bits) + 1)).astype(int)


def _boolean(draw: Draw) -> np.ndarray:
    bits = _some(draw, 2, 4)
    return draw.integers(2, size=2 ** len(bits))[PATTERNS[:, bits] @ 2 ** np.arange(len(bits))]


def _tree(draw: Draw) -> np.ndarray:
    """Return a function in which one coordinate decides which of two parities is shown."""
    root = draw.integers(spaces.K)
    return np.where(PATTERNS[:, root], *(subparity(_some(draw, 1, 3)) for _ in range(2)))


# Each kind draws a function of the pattern. A label space combines parity with one to four of them.
KINDS: dict[str, Callable[[Draw], np.ndarray]] = {
    "bit": lambda draw: subparity(_some(draw, 1, 1)),
    "subparity": lambda draw: subparity(_some(draw, 2, 4)),
    "count": lambda draw: count(_some(draw, 2, 5)),
    "threshold": _threshold,
    "boolean": _boolean,
    "tree": _tree,
    "IDs of patterns": lambda draw: draw.integers(draw.integers(2, 7), size=len(PATTERNS)),
}


def refinements(number: int, seed: int, shuffled: Sequence[float]) -> list[dict[str, Any]]:
    """Return distinct random refinements of parity, as `name`, `table` and `shuffled` (a share) of settings."""
    draw, entries = np.random.default_rng(seed), {}
    while len(entries) < number:
        kinds = draw.choice(list(KINDS), draw.integers(1, 5))
        table = spaces.refined(*(KINDS[kind](draw) for kind in kinds))
        share = float(draw.choice(shuffled))
        name = f"{len(entries)}: {', '.join(kinds)}; {share:.0%} shuffled"
        entries.setdefault((table, share), {"name": name, "table": table, "shuffled": share})
    return list(entries.values())


SIZES = {
    size: [
        Settings(labels="table", structured=False, seeds=arms["seeds"], **arms["setting"], **one)
        for one in refinements(arms["refinements"], arms["seed"], arms["shuffled"])
    ]
    for size, arms in SAID["arms"].items()
}


def simulate(runs: Sequence[Trial], device: torch.device) -> list[dict[str, Any]]:
    """Train a group of runs as the world does; add a row of phase `law` with what was known of each space before."""
    rows = []
    for run in runs:
        law = spaces.law(run.settings.table, run.settings.shuffled)
        numbers = ("staircase", "balanced", "weakest", "degree_1", "information", "labels")
        rows.append(engine.row(run, {f"law_{name}": getattr(law, name) for name in numbers}, phase="law"))
    return rows + model.simulate(runs, device)


EMERGED = 90.0  # per cent of test inputs with the right parity, from which parity has emerged
ZERO, NOTHING = 1e-9, 3e-3  # what counts as none, and where the figure draws it
STAIRCASE = "staircase"
PEERS = {"degree_1": "degree-1 mass", "weakest": "weakest degree-1", "information": "information", "labels": "G"}
RESAMPLES = 2000


def seen(table: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return what was known of each label space (rows), and test accuracy on parity (spaces, seeds; diverged: 0)."""
    laws = table[table["phase"] == "law"].drop_duplicates("setting").set_index("setting")
    laws = laws[[name for name in laws if name.startswith("law_")]].rename(columns=lambda name: name[4:]).round(9)
    ends = table[(table["phase"] == "network") & table["event"].str.contains("end|diverged")].fillna({"test_acc": 0})
    return laws, ends.pivot(index="setting", columns="seed", values="test_acc").loc[laws.index].to_numpy()


def auc(score: np.ndarray, emerged: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the area under the curve (resamples, seeds): how often spaces that emerged score higher; ties: half.

    NaN if all or none emerged. score (spaces,), emerged (spaces, seeds) bool, and weight (resamples, spaces): how often
    each space was drawn (default: once).
    """
    weight = np.ones((1, len(score))) if weight is None else weight
    larger = (score[:, None] > score) + 0.5 * (score[:, None] == score)
    pairs = [(weight * column, weight * ~column) for column in emerged.T]
    with np.errstate(invalid="ignore"):
        return np.stack([((yes @ larger) * no).sum(1) / (yes.sum(1) * no.sum(1)) for yes, no in pairs], 1)


def resamples(spaces: int) -> np.ndarray:
    """Return (RESAMPLES, spaces): how often each label space is drawn in a bootstrap."""
    return np.random.default_rng(0).multinomial(spaces, np.full(spaces, 1 / spaces), RESAMPLES)


def ahead(known: pd.DataFrame, emerged: np.ndarray, peer: str) -> float:
    """Return the lower end of the corrected bootstrap interval of the mean AUC of the staircase minus a peer's AUC."""
    mine, rival = (auc(known[name].to_numpy(), emerged, resamples(len(known))) for name in (STAIRCASE, peer))
    return float(np.quantile((mine - rival).mean(1), 0.025 / len(PEERS)))


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the preregistered predictions; each AUC per seed, each comparison by its interval's lower end."""
    laws, accuracy = seen(table)
    names = ("auc", "auc, balanced", *(f"ahead of {peer}" for peer in PEERS), "threshold", "without", "stairs")
    names += ("share", *(f"auc, {peer}" for peer in PEERS))
    measured: dict[str, Sequence[float]] = {name: [] for name in names}
    if len(laws):
        emerged, score = accuracy >= EMERGED, laws[STAIRCASE].to_numpy()
        predicted, without = score >= SAID["threshold"], score < ZERO
        stairs = predicted & (laws["weakest"].to_numpy() < ZERO)
        scores = {"auc": STAIRCASE, "auc, balanced": "balanced"} | {f"auc, {peer}": peer for peer in PEERS}
        measured |= {name: auc(laws[column].to_numpy(), emerged)[0] for name, column in scores.items()}
        measured |= {f"ahead of {peer}": [ahead(laws, emerged, peer)] for peer in PEERS}
        measured["threshold"] = auc(predicted.astype(float), emerged)[0]  # of a yes or no: the balanced accuracy
        measured |= {
            name: emerged[mask].mean(0) for name, mask in (("without", without), ("stairs", stairs)) if mask.any()
        }
        measured["share"] = emerged.mean(0)
    return preregistered.claims(SAID, measured, dict.fromkeys(measured, accuracy.shape[1] if len(laws) else 0))


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw accuracy against the staircase and against degree-1 mass; and areas under the curve with intervals."""
    laws, accuracy = seen(table)
    figure, panels = draw.canvas(3, width=10, height=3)
    mean, low, high = accuracy.mean(1), accuracy.min(1), accuracy.max(1)
    kinds = {STAIRCASE: ("staircase: least R on the way", "predicted"), "degree_1": ("degree-1 mass", "a rival")}
    flat, none = (laws["weakest"] < ZERO) & (laws[STAIRCASE] > ZERO), laws[STAIRCASE] < ZERO
    groups = {"all coordinates at once": ~flat & ~none, "by stairs": flat, "a stair is missing": none}
    for axes, (name, (words, title)) in zip(panels, kinds.items(), strict=False):
        for index, (label, mask) in enumerate(groups.items()):
            x, mine = laws.loc[mask, name].clip(lower=NOTHING), mask.to_numpy()
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
    emerged, names = accuracy >= EMERGED, {STAIRCASE: STAIRCASE, "balanced": "balanced", **PEERS}
    for place, name in enumerate(names):
        score = laws[name].to_numpy()
        middle, drawn = auc(score, emerged).mean(), auc(score, emerged, resamples(len(laws))).mean(1)
        bars = np.abs(np.quantile(drawn, (0.025, 0.975)) - middle)[:, None]
        panels[2].errorbar(place, middle, yerr=bars, fmt="o", color=draw.COLOURS[0], capsize=2)
    panels[2].set_xticks(range(len(names)), names.values(), rotation=30, ha="right")
    panels[2].axhline(0.5, color="black", linestyle=":", linewidth=1)
    panels[2].set(ylabel="area under the curve", ylim=(0.4, 1.02), title="how well each number predicts (0.5: a coin)")
    draw.save(figure, folder, NAME, "left: means over seeds, from the least to the largest; right: 95 % intervals")
