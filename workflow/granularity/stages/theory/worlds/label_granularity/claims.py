"""World 1's claims (how to read them: `theory.statements`) and figures; bands come from pilots of two to five seeds."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from granularity.claims.claim import Claim
from granularity.stages.theory import statements
from granularity.stages.theory.figures import Curve, Line, Points, draw, panel, points
from granularity.stages.theory.statements import Runs, swept
from granularity.stages.theory.worlds.label_granularity import settings as a

COARSES, FINES = ({scale: arm.format(scale) for scale in a.SCALES} for arm in (a.COARSE, a.FINE))
BOTH = {scale: (COARSES[scale], FINES[scale]) for scale in a.SCALES}
MADE = {scale: both for scale, both in BOTH.items() if scale != "P"}
COLUMNS = ("hard_own", "normal_own", "hard_label", "normal_label")
# S12: the response to hard samples against g, by step, head and stopping rule.
CURVES = {"step 0.2 g": a.SWEEP, "equal step 0.2": {1: a.SWEEP[1], **a.EQUAL_STEP}}
CURVES |= {"equal loss 0.1, step 0.2 g": a.EQUAL_LOSS}
NAMES: dict[str, Any] = dict(COARSES=COARSES, FINES=FINES, BOTH=BOTH, MADE=MADE, ONE="from a pilot run of one seed")
NAMES |= dict(REVERSED={scale: (fine, coarse) for scale, (coarse, fine) in BOTH.items()})
NAMES |= dict(ALL_COARSE=tuple(coarse for coarse, _ in MADE.values()))
NAMES |= dict(EARLY_ARMS={"coarse": a.EARLY, "fine": a.EARLY_FINE})
NAMES |= dict(WITHIN_FIXED={what: a.FINITE_ARMS[what] for what in ("random IDs within superclasses", a.MORE_DATA)})
NAMES |= dict(ALIVE=[a.SWEEP[1], a.SWEEP[8], a.RANDOM, a.SLOW_RANDOM, a.WITHIN, a.SLOW_WITHIN])
NAMES |= dict(BASELINES=["A coarse", *(arm for *_, arm in swept(a.VARIED, a.BASELINE))])
NAMES |= dict(LAZY_RISE={"lazy": (a.LAZY[1], a.LAZY[8])}, NETWORK_RISE={"network": (a.SWEEP[1], a.SWEEP[8])})
NAMES |= dict(FINITE_ARMS=a.FINITE_ARMS, GAUSS=a.GAUSS, LINEAR=a.LINEAR, LONG=a.LONG, LONG_FINE=a.LONG_FINE)
NAMES |= dict(NETWORK_NOISY=a.NETWORK_NOISY, RANDOM=a.RANDOM, SLOW=a.SLOW, SLOW_RANDOM=a.SLOW_RANDOM)
NAMES |= dict(SLOW_WITHIN=a.SLOW_WITHIN, WITHIN=a.WITHIN)


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge S1 to S19 from the run table (see `Claim`)."""
    said, functions = statements.tables("label_granularity"), (between, slope, apart, early, rate)
    functions += coarse_share, fine_law, at_least_n
    found = statements.judge(table, said["statements"], NAMES, *functions)
    for statement in said["rising"].strip().split("\n\n"):
        for how, arms in CURVES.items():
            own = {"CURVE": arms, "RISES": _neighbours(arms)}
            found += statements.judge(table, statement.replace("HOW", how) + "\n", own)
    return found + statements.judge(table, said["labels_mean"], NAMES, *functions)


def _neighbours(arms: dict[int, str]) -> dict[str, tuple[str, str]]:
    """Return arms of g and of the next g, by the name of their difference."""
    return {f"{two} minus g = {one}": (arms[one], arms[two]) for one, two in ((1, 2), (2, 4), (4, 8))}


def between(runs: Runs, arm: str) -> tuple[float, float]:
    """Return the band of coarse networks' hard/normal ratio: q/(k + q) to 1/(k + 1), a tenth wider."""
    k, signal, patches = runs.parameters(arm, "k", "signal", "patches")
    q = (1 - signal / patches) ** 2
    return 0.9 * q / (k + q), 1.1 / (k + 1)


def slope(runs: Runs, *arms: str) -> dict[str, Any]:
    """Return the slope of the log response to hard samples on log k, over the scales that were run."""
    arms = [arm for arm in arms if arm in runs.settings] or list(arms[:1])
    if len(arms) < 2:
        return {"values": [], "seeds": 0, "arms": arms}
    hard = {arm: np.log(runs(arm, "hard_own")) for arm in arms}
    ks = [np.full(len(one), runs.parameters(arm, "k")[0]) for arm, one in hard.items()]
    found = np.polyfit(np.log(np.concatenate(ks)), np.concatenate(list(hard.values())), 1)[0]
    return {"values": [found], "seeds": min(map(len, ks)), "arms": arms}


def apart(runs: Runs, *arms: str) -> dict[str, Any]:
    fine, coarse = (runs(arm, "hard_own") for arm in arms)
    seeds = min(len(fine), len(coarse))
    return {"values": [fine.min() / coarse.max()] if seeds else [], "seeds": seeds}


def early(runs: Runs, arm: str, column: str) -> np.ndarray:
    k, eta, s, P, steps = runs.parameters(arm, "k", "eta", "signal", "patches", "steps")
    step = eta * s / (2 * P)
    fine = {"common": step / (2 * k), "subclass": step * (1 - 1 / (2 * k)) / k}
    theory = fine[column] if arm == a.EARLY_FINE else step / 2 / (1 if column == "common" else k)
    return (runs(arm, f"{column}_weight", step=15) - runs(arm, f"{column}_weight", step=0)) / steps / theory


def rate(runs: Runs, arm: str) -> np.ndarray:
    one, two = (np.exp(runs(arm, "normal_own", step=step)) for step in (200, 2000))
    return (two - one) / 1800 / _growth(runs, arm)


def coarse_share(runs: Runs, arm: str) -> list[float]:
    later = runs.table[(runs.table["setting"] == arm) & (runs.table["step"] >= 20)]
    return _worst(later, later["hard_own"] / later["normal_own"] * (runs.parameters(arm, "k")[0] + 1))


def fine_law(runs: Runs, arm: str) -> list[float]:
    some = runs.table[(runs.table["setting"] == arm) & runs.table["step"].isin([5, 20, 100, 200])]
    own, k = some["hard_label"], runs.parameters(arm, "k")[0]
    g = some["normal_label"] - own
    return _worst(some, own / (g + (1 - 1 / k) * (np.exp(g) - 1)))


def _worst(rows: pd.DataFrame, ratio: pd.Series) -> list[float]:
    """Return for each seed the ratio farthest from 1 (NaN wins)."""
    grouped = ratio.groupby(rows["seed"])
    return [float(part.iloc[(part - 1).abs().fillna(math.inf).argmax()]) for _, part in grouped]


def at_least_n(runs: Runs, arm: str) -> tuple[float, float]:
    return runs.parameters(arm, "n_act")[0], math.inf


# ---------------------------------------------------------------- figures

HEADS = {"coarse": (COARSES, "sum"), "fine, sum": (FINES, "sum")}
HEADS |= {"fine, pruned": (FINES, "pruned"), "fine, max": (FINES, "max")}


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw responses, separation with k, decisions under disturbance, granularity, the log law."""
    runs = Runs(table)
    ks = {scale: runs.parameters(arm, "k")[0] for scale, arm in COARSES.items() if arm in runs.settings}
    made = {scale: k for scale, k in ks.items() if scale != "P"}
    titles = {a.LONG: "2 coarse labels", a.LONG_FINE: "2k fine labels, summed over subclasses"}
    rows = {arm: runs.rows(arm)[runs.rows(arm)["step"] > 0] for arm in titles}
    top = 1.05 * max(one["normal_own"].max() for one in rows.values())
    words = {"log": "x", "ylim": (-0.03 * top, top), "xlabel": "training step", "ylabel": "network response F (nats)"}
    panels = []
    for arm, title in titles.items():
        curves = [Curve(rows[arm], f"{kind}_own", f"own superclass, {kind} samples") for kind in ("normal", "hard")]
        other = Curve(rows[arm], "hard_other", "other superclass, hard samples", colour=6, style=":")
        panels.append(panel(*curves, other, **words, title=title))
    draw(folder, "responses", *panels, legend=3)
    normal = np.nanmean(np.concatenate([runs(COARSES[scale], "normal_own") for scale in made or ["A"]]))
    words = {"log": "xy", "ticks": list(made.values()), "legend": "best", "xlabel": "subclasses per superclass, k"}
    kinds = {"fine labels, summed": FINES, "coarse labels": COARSES}
    series = [points(runs, {k: arms[s] for s, k in made.items()}, "hard_own", label) for label, arms in kinds.items()]
    law = Line(words["ticks"], [normal / (k + 1) for k in made.values()], "normal response / (k + 1)", ":")
    draw(folder, "separation", panel(*series, law, ylabel="response to hard samples (nats)", **words))
    shown = {0: "hard_accuracy{1}"} | {n: f"accuracy_{{0}}_{n}_distractor{'s' * (n > 1)}" for n in (1, 2, 4)}
    words = {"dodge": 0.08, "ticks": dict(enumerate(map(str, shown))), "ylim": (-0.05, 1.05)}
    words |= {"ylabel": "accuracy on hard samples", "xlabel": "distracting patches"}
    panels = []
    for scale in (scale for scale in ks if scale in "ABC"):
        series = []
        for label, (arms, head) in HEADS.items():
            columns = [name.format(head, "" if head == "sum" else f"_{head}") for name in shown.values()]
            series.append(Points({place: runs(arms[scale], name) for place, name in enumerate(columns)}, label))
        panels.append(panel(*series, title=f"k = {ks[scale]:g} subclasses", **words))
    draw(folder, "decisions", *panels, width=6.8, legend=4)
    words = {"log": "x", "ticks": list(a.SWEEP), "dodge": 0.06, "xlabel": "labels per superclass, g"}
    panels = []
    for column, label, of in (
        ("hard_own", "response to hard samples (nats)", runs),
        ("hard_own", "response, hard / normal", partial(_share, runs)),
        ("accuracy_sum_2_distractors", "hard accuracy, 2 distractors", runs),
    ):
        series = [points(of, arms, column, how) for how, arms in CURVES.items()]
        ids = {"random IDs in superclasses": a.WITHIN, "random IDs": a.RANDOM}
        series += [points(of, {8: arm}, column, how, line=False) for how, arm in ids.items()]
        panels.append(panel(*series, ylabel=label, **words))
    draw(folder, "granularity", *panels, width=6.8, legend=5)
    _log_law(runs, folder)


def _share(runs: Runs, arm: str, _: str) -> np.ndarray:
    """Return hard over normal response, NaN for a dead network."""
    hard, normal = runs(arm, "hard_own"), runs(arm, "normal_own")
    return np.divide(hard, normal, out=np.full_like(hard, np.nan), where=normal > 0.1)


def _growth(runs: Runs, arm: str) -> float:
    """Return the growth of exp F per step, by the theory."""
    k, eta, s, P, n, beta = runs.parameters(arm, "k", "eta", "signal", "patches", "n_act", "beta")
    return eta * s**2 * n / (2 * P) * (1 + 1 / k) * (1 - beta)


def _log_law(runs: Runs, folder: Path) -> None:
    rows, k = runs.rows(a.LONG), runs.parameters(a.LONG, "k")[0]
    rows = rows[rows["step"] >= 5].assign(ratio=rows["hard_own"] / rows["normal_own"])
    later = np.array(sorted(step for step in rows["step"].unique() if step >= 200))
    start = rows.loc[rows["step"] == 200, "normal_own"].mean()
    law = np.log(np.exp(start) + _growth(runs, a.LONG) * (later - 200))
    common = {"log": "x", "xlabel": "training step", "legend": "best"}
    curves = Curve(rows, "normal_own", "normal samples"), Line(later, law, "ln(C (t - 200) + exp F(200))")
    level = Line(y=1 / (k + 1), label=f"1 / (k + 1), k = {k:g}")
    words = {"ylabel": "coarse response, hard / normal", "ylim": (0, 1.5 / (k + 1))}
    right = panel(Curve(rows, "ratio", "measured"), level, **words, **common)
    draw(folder, "log_law", panel(*curves, ylabel="coarse response F (nats)", **common), right)
