"""Study: sibling labels cure feature contamination (docs/findings/sibling_labels.md). Extends that world."""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import figures as draw
from granularity.stages.theory.statements import Runs
from granularity.stages.theory.worlds.feature_contamination.claims import gain, kept
from granularity.stages.theory.worlds.feature_contamination.measures import simulate
from granularity.stages.theory.worlds.feature_contamination.settings import Settings

EXTENDS, NAME = "world", "sibling_labels"
COLUMNS = ("id_risk",)
COARSE, FINE = "2 labels", "8 labels"
SAID = strict_yaml.read(Path(__file__).with_name("predictions.yaml"))
_ARMS = SAID["arms"]
SIZES = {
    size: [Settings(name=name, **{**common, **arm}) for name, arm in _ARMS["settings"].items()]
    for size, common in _ARMS["sizes"].items()
}
__all__ = ["COLUMNS", "EXTENDS", "SIZES", "Settings", "figures", "judge", "simulate"]
Found = tuple[np.ndarray, tuple[str, ...]]  # a measure, one value per seed, and the arms that it concerns


def predicted(table: pd.DataFrame, arm: str) -> np.ndarray:
    """Return bg_sum as predicted from the pulls of own labels and rivals, and the initial weights' decay; per seed."""
    runs = Runs(table)
    lr, decay, steps = runs.parameters(arm, "lr", "decay", "steps")
    return runs(arm, "bg_sum", step=0) * (1 - lr * decay) ** steps + runs(arm, "bg_own") - runs(arm, "bg_rival")


def relief(table: pd.DataFrame, arm: str, words: str = "") -> np.ndarray:
    """Return the OOD risk of coarse labels minus that of `arm`, at equal ID risk of the class; one value per seed.

    The run with coarse labels is read where its ID risk has fallen to that of `arm` at the end (linear between recorded
    steps), or at its own end, if it never does. `words`: suffix of both arms' names, such as ", trained head".
    """
    reliefs = []
    coarse = table[(table["setting"] == COARSE + words) & table["id_risk"].notna()]
    for seed, rows in table[table["setting"] == arm + words].groupby("seed"):
        end, curve = rows.iloc[-1], coarse[coarse["seed"] == seed].sort_values("step")
        if len(curve):
            falling = np.minimum.accumulate(curve["id_risk"].to_numpy())
            reliefs.append(np.interp(-end["id_risk"], -falling, curve["ood_risk"].to_numpy()) - end["ood_risk"])
    return np.array(reliefs)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return each arm's means over seeds: overlap of the rivals' gates, bg_sum, its prediction, and margin kept."""
    runs, rows = Runs(table), {}
    for arm in table["setting"].unique():
        values = {name: runs(arm, name) for name in ("overlap", "bg_sum", "bg_own")}
        values |= {"predicted": predicted(table, arm), "kept": kept(runs, arm)}
        rows[arm] = {name: value.mean() for name, value in values.items()}
    return pd.DataFrame(rows, ["overlap", "bg_sum", "bg_own", "predicted", "kept"]).T


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the preregistered predictions; those about all arms have one value per arm, the others one per seed."""
    runs = Runs(table)

    def compared(*arms: str) -> Found:
        return gain(runs, *arms), arms

    def gained(words: str, fine: str = FINE) -> Found:
        return compared(fine + words, COARSE + words)

    def saved(words: str) -> Found:
        return relief(table, FINE, words), (FINE + words, COARSE + words)

    def both(one: Found, two: Found) -> Found:
        return np.concatenate([one[0], two[0]]), (*one[1], *two[1])

    fixed, entropy = ", 256 fixed samples", ", cross-entropy"
    centred, arms = gained(", centred background")
    of_arms: dict[str, Found] = {
        "cure": saved(""),
        "kept": gained(""),
        "half as fine": gained("", "4 labels"),
        "trained head": saved(", trained head"),
        "shared": saved(", shared neurons"),
        "shared, trained": saved(", shared neurons, trained head"),
        "fixed siblings": gained(fixed),
        "fixed siblings, cross-entropy": gained(fixed + entropy),
        "fixed random": gained(fixed + entropy, "8 random labels"),
        "redrawn random": gained(entropy, "8 random labels"),
        "temperature": compared(f"{FINE}, T = 0.2", FINE + entropy),
        "decay": both(gained(", decay 0.002"), gained(", no decay")),
        "subclasses": both(gained(", K = 2", "4 labels"), gained(", K = 8", "16 labels")),
        "mean": both(gained(", background mean 0.25"), gained(", background mean 1")),
        "centred": (np.abs(centred), arms),
        "sibling rivals": (runs(FINE, "sibling_rivals"), (FINE,)),
    }
    by_arm = summary(table)
    pulled = by_arm[by_arm["bg_own"].abs() > 0]  # a centred background exerts no pull
    rows = by_arm[~by_arm.index.astype(str).str.contains("shared|random|centred")]
    rank = [rows["overlap"].corr(rows["kept"], method="spearman")] if len(rows) > 2 else []
    error = (pulled["predicted"] - pulled["bg_sum"]).abs() / pulled["bg_own"]
    of_arms |= {"derived": (error.to_numpy(), tuple(pulled.index)), "overlap": (np.array(rank), tuple(rows.index))}
    seeds = dict.fromkeys(("derived", "overlap"), table["seed"].nunique())
    values, arms = ({name: one[i] for name, one in of_arms.items()} for i in (0, 1))
    return preregistered.claims(SAID, values, seeds, arms)


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw the law against the measurement; margin kept against overlap; relief of pairs of arms, with intervals."""
    by_arm = summary(table)
    figure, panels = draw.canvas(3, width=13, height=3.8)
    limits = [by_arm["predicted"].min(), by_arm["predicted"].max()]
    panels[0].plot(limits, limits, ":", color="black", linewidth=1)
    for arm, row in by_arm.iterrows():
        index = 2 if "random" in arm else 0 if arm.startswith(COARSE) else 1
        style = {"color": draw.COLOURS[index], "marker": draw.MARKERS[index], "linestyle": ""}
        panels[0].plot(row["predicted"], row["bg_sum"], **style)
        if "shared" not in arm:
            panels[1].plot(row["overlap"], row["kept"], **style)
    panels[0].set(xlabel="predicted from the pulls", ylabel="measured", title="background weight of each arm")
    panels[0].annotate("as predicted", (limits[1], limits[1]), ha="right", va="bottom", fontsize=7)
    panels[1].set(xlabel="overlap of the rivals' gates", ylabel="share kept", title="margin kept, background turned")
    for index, words in enumerate(("2 labels", "fine labels", "random labels")):
        panels[1].plot([], [], color=draw.COLOURS[index], marker=draw.MARKERS[index], linestyle="", label=words)
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    names = [arm for arm in by_arm.index if not arm.startswith(COARSE)]
    pairs = {arm: relief(table, arm.partition(",")[0], "".join(arm.partition(",")[1:])) for arm in names}
    pairs = {arm: values for arm, values in pairs.items() if len(values)}
    for place, values in enumerate(pairs.values()):
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else 0
        panels[2].errorbar(values.mean(), place, xerr=half, fmt="o", color=draw.COLOURS[0], capsize=2, markersize=3)
    panels[2].set_yticks(range(len(pairs)), pairs)
    panels[2].axvline(0, color="black", linestyle=":", linewidth=1)
    panels[2].set(xlabel="OOD risk of 2 labels minus that of the arm", title="risk saved, at equal ID risk (0: none)")
    draw.save(figure, folder, NAME, "means over seeds; bars are 95 % intervals of the mean over seeds")
