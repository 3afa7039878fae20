"""World 3's claims (how to read them: `theory.statements`), and figures with the paper's figures that they re-plot.

Bands come from pilot runs, and from exact upper bounds where these exist; those of A19, A20, A22 and A24 were set
before. A: confirmed by an independent re-implementation. P: published results that it did not reproduce. X: the
crossing with label granularity.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from granularity.claims import published
from granularity.claims.claim import Claim
from granularity.stages.theory import statements
from granularity.stages.theory.figures import COLOURS, SPREAD, Curve, Line, Points, draw, panel, points
from granularity.stages.theory.statements import Runs, minus, swept
from granularity.stages.theory.worlds.feature_emergence import settings as a
from granularity.stages.theory.worlds.feature_emergence.data import CEILING

PAPER = "feature_emergence"
COLUMNS = ("test_acc",)
NAMES: dict[str, Any] = dict(PILOT="from pilot runs of one to three seeds", BEFORE="set before these arms were run")
NAMES["PRINTED"] = (
    "2 points: four of the s.d. that the paper bounds; 0.05: what the largest random cosine varies by; set before"
)
NAMES["CEILED"] = "2.5 points above the best threshold on s, as of A6; from a pilot run of one seed"
NAMES["FORESEEN"] = (
    "set before these arms were run: of two classes as A4, A6 and A7; 93.1: 2.5 points above the best threshold \
on s with 80 % negative; 79.9: 2.5 above the best function of <u, x> with random columns"
)
IMAGES = "not run: needs images, which no world of the theory has"
MAIN = "parity; main setting (d = 500, m = 300, n = 50000)"
BASELINES = ("random features", "tangent kernel", "plain SGD")
NAMES |= dict(IMAGES=IMAGES, SCALE={scale: (scale, f"{scale}, {a.PLAIN}") for scale in a.SCALES})
NAMES |= dict(SOME=a.RESIDUAL[0.65], FULL=a.RESIDUAL[1.0])
VARIED = {key: (f"{key}, structured", f"{key}, {a.PLAIN}") for key in a.VARIED}
NAMES |= dict(VARIED=VARIED, GENERAL={key: (f"{key}, structured", f"{key}, {a.PLAIN}") for key in a.GENERAL})
NAMES |= dict(SHARED={f"{share:.0%}": (a.unbalanced(share, False), a.unbalanced(share, True)) for share in a.SHARES})
NAMES |= {f"UNBALANCED_{100 * share:.0f}": a.unbalanced(share, True) for share in a.SHARES}
# Tables 1 to 5: the arms of their settings, with and without structure, and their names in the paper.
TABLES = {("main", f"main, {a.PLAIN}"): ("T1", MAIN)}
TABLES |= {("interval, structured", f"interval, {a.PLAIN}"): ("T2", "interval; d = 500, m = 100")}
TABLES |= {VARIED[key]: ("T3" if key in ("d = 100", "d = 2000") else "T5", f"parity; {key}") for key in a.VARIED}
TABLES |= {
    (a.unbalanced(share, True), a.unbalanced(share, True, False)): ("T4", f"parity; share of class -1: {share}")
    for share in a.SHARES
}
SETTINGS = {arm: setting for arms, (_, setting) in TABLES.items() for arm in arms}
NEAR = {"train": 2.0, "test": 2.0, "cos": 0.05}
METRICS = {"train": "train_accuracy_percent", "test": "test_accuracy_percent", "cos": "cosine_max"}
PAIRS = ("v1, v", "v2, v", "v3, v", "v1, v2", "v1, v3", "v2, v3")  # of gradients over steps 1-10, 11-20, 21-30, and all
NAMES |= dict(AGAIN=("small", "small, again"), KERNELS=a.KERNELS, RANDOM=a.grain("random", False))
NAMES |= dict(NETWORKS=[arm for key, _, arm in swept(a.SWEEP, a.SWEPT, a.MORE, a.RATES) if key != "baseline_rms"])
REFINED = ("halves", "count", "pattern")
NAMES |= dict(FINER={a.WORDS[labels]: (a.grain(labels, False), a.grain("rule", False)) for labels in REFINED})
NAMES |= dict(WHOLES=[a.space(name) for name in a.WHOLE], BROKENS=[a.space(name) for name in a.BROKEN])
GRAINS = [a.grain(labels, structured) for labels in a.GRAINS for structured in a.BOTH]
NAMES |= dict(GRAINS=GRAINS, SCALES=list(a.SCALES), CENTRES=list(a.CLUSTERS), DIGIT_ARMS=list(a.DIGITS))
NAMES |= dict(MIXTURES=list(a.MIXTURES), WIDER=("digits, 50 units", "digits, matched Gaussians"))
NAMES |= dict(CURVES=["digits, matched Gaussians", *a.MIXTURES])
NAMES["EXPECTED"] = (
    "set before these arms were run; expected to hold, except that with three Gaussians to a digit the digits part is \
more than 3 points below digits alone, because it has a quarter of the digits"
)


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge A1 to A22, A24, P1 to P6, X1 to X4 from the run table (see `Claim`)."""
    runs, tables = Runs(table), statements.tables("feature_emergence")
    were_varied = any(arm in runs.settings for arm, _ in VARIED.values())
    text = tables["statements"] + tables["varied_run" if were_varied else "none_varied"]
    text += tables["unbalanced"]
    for arm in (f"interval, {words}" for words in a.BOTH.values()):
        majority = runs(arm, "majority", phase="data", step=0)
        share = f" (majority {majority.mean():.1f})" if majority.size else ""
        text += tables["interval"].replace("ARM", arm).replace("SHARE", share)
    text += tables["elsewhere"]
    for arm in (arm for arm in a.DIGITS if arm in runs.settings):
        if np.isfinite(runs(arm, "teacher_by_rule", phase="labels", step=0)).any():
            text += tables["by_rule"].replace("ARM", arm)
    text += tables["images"]
    for filters in ("128", "256"):
        for pair in PAIRS:
            text += tables["gradients"].replace("FILTERS", filters).replace("PAIR", pair)
    for arms, (name, _) in TABLES.items():
        statement = tables["printed"].replace("TABLE", name).replace("NUMBER", name[1:])
        text += statement.replace("WITHOUT", arms[1]).replace("WITH", arms[0])
    text += tables["published"]
    for arm in (*(arm for *_, arm in swept(a.SWEEP, a.SWEPT, a.MORE)), a.WIDE):
        text += tables["of_rates"].replace("ARM", arm)
        for method in BASELINES:
            text += tables["of_best"].replace("METHOD", method)
            for phase in _of(runs, arm, method)["phase"].unique():
                text += tables["of_rate"].replace("PHASE", phase)
    functions = (best, bias_ratio, scaled_cosine, near, needs_weights, passage, gradients, printed, clusters)
    functions += (at_best, ahead_of_fixed, from_constant, of_main, or_nothing, smallest_gap, later)
    return statements.judge(table, text + tables["crossing"], NAMES, *functions)


def _of(runs: Runs, arm: str, method: str) -> pd.DataFrame:
    """Return rows of a method such as "random features", which has one phase per rate."""
    return runs.table[(runs.table["setting"] == arm) & runs.table["phase"].str.startswith(method + " ")]


def best(runs: Runs, arm: str, method: str, column: str = "test_acc") -> np.ndarray:
    """Return a measure at the end of a method's rate that is best on validation data, one value per seed."""
    rows = _of(runs, arm, method)
    ends = rows[rows["event"].str.contains("end|diverged")].groupby("seed")
    return np.array([part[column].iloc[part["val_acc"].fillna(-1).argmax()] for _, part in ends], dtype=float)


def passage(runs: Runs, arm: str, level: float = 99.0) -> list[float]:
    """Return the first recorded step with a network's test accuracy of `level`, one value per seed; NaN if never."""
    rows = runs.rows(arm, "network")
    return list(rows["step"].where(rows["test_acc"] >= level).groupby(rows["seed"]).min())


def _curves(runs: Runs, arm: str) -> list[pd.DataFrame]:
    return [rows for _, rows in runs.rows(arm, "student, mixture").groupby("seed")]


def smallest_gap(runs: Runs, arm: str) -> list[float]:
    """Return a student's smallest lead on digits over Gaussians at recorded steps from 50 on, one value per seed."""
    return [(rows["L_acc"] - rows["U_acc"])[rows["step"] >= 50].min() for rows in _curves(runs, arm)]


def later(runs: Runs, arm: str) -> list[float]:
    """Return by how many steps later Gaussians reach 90 % of their last accuracy than digits do, one value per seed."""

    def reached(rows: pd.DataFrame, part: str) -> float:
        return rows["step"][rows[part] >= 0.9 * rows[part].iloc[-1]].min()

    return [float(reached(rows, "U_acc") - reached(rows, "L_acc")) for rows in _curves(runs, arm)]


def scaled_cosine(runs: Runs, arm: str) -> np.ndarray:
    return runs(arm, "cos_max", phase="two steps", step=0) * math.sqrt(a.SCALES[arm]["d"])


def ahead_of_fixed(runs: Runs, arm: str) -> Any:
    one, other = (best(runs, arm, method) for method in BASELINES[:2])
    return minus(runs(arm, "test_acc", phase="network"), np.fmax(one, other)) if one.size == other.size else []


def from_constant(runs: Runs, arm: str) -> Any:
    as_is = runs(arm, "test_acc", phase="one step, as is")
    majority = runs(arm, "majority", phase="data", step=0)
    return np.minimum(np.abs(as_is - majority), np.abs(as_is - 100 + majority)) if as_is.size else []


def bias_ratio(runs: Runs, *arms: str) -> np.ndarray:
    one, other = (runs(arm, "bias_sd", phase="two steps", step=2) for arm in arms)
    return one / other if one.size == other.size else np.empty(0)


def needs_weights(runs: Runs, *arms: str) -> Any:
    bare, ratio = runs(arms[0], "test_acc", phase="network"), bias_ratio(runs, *arms)
    return ((bare < 95) | (ratio > 5)).astype(float) if bare.size == ratio.size else []


def at_best(runs: Runs, arm: str, method: str) -> Any:
    ends = [or_nothing(runs, arm, phase) for phase in _of(runs, arm, method)["phase"].unique()]
    return np.max(ends, axis=0) if ends else []


def or_nothing(runs: Runs, arm: str, phase: str) -> np.ndarray:
    return np.nan_to_num(runs(arm, "test_acc", phase=phase))  # diverged: 0


def of_main(runs: Runs, *args: str) -> list[float]:
    """Return the paper's number for its main setting; the last two arguments are arm and metric."""
    return printed(runs, "main", *args[-2:])


def printed(runs: Runs, arm: str, method: str, metric: str) -> list[float]:
    """Return a table's number for a method in the setting of an arm."""
    return [published.number(PAPER, setting=SETTINGS[arm], arm=method, metric=METRICS[metric])]


def near(runs: Runs, arm: str, method: str, metric: str) -> tuple[float, float]:
    (number,) = printed(runs, arm, method, metric)
    return number - NEAR[metric], number + NEAR[metric]


def gradients(runs: Runs, filters: str, pair: str) -> list[float]:
    setting = f"CIFAR-10 airplane or automobile; ResNet({filters}); 20 epochs"
    return [published.number(PAPER, table="T7", setting=setting, arm=pair)]


def clusters(runs: Runs, data: str) -> list[float]:
    rows = (row for row in published.read(PAPER) if row["metric"] == "clusters_of_weights")
    return [float(row["mean"]) for row in rows if row["setting"].startswith(data)]


# ---------------------------------------------------------------- figures

METHODS = {"network": "network", "random features": "random features (RF)", "tangent kernel": "tangent kernel (NTK)"}
MIXED = {"L_acc": "digits, student of the mixture", "whole_acc": "whole mixture", "U_acc": "Gaussian inputs"}
PARTS = {("student, digits alone", "L_acc"): "digits, student of digits alone"}
PARTS |= {("student, mixture", column): words for column, words in MIXED.items()}
INPUTS = {True: "structured inputs", False: f"inputs {a.PLAIN}"}
STEP, ACCURACY, MDS = {"xlabel": "training step"}, "test accuracy (%)", {"xlabel": "MDS axis 1", "ylabel": "MDS axis 2"}


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw accuracies (Figure 1 and at other sizes), neurons (Figure 2), alignment, clusters, digits, granularity."""
    runs = Runs(table)
    scale = "main" if {"main", f"main, {a.PLAIN}"} <= runs.settings else "small"
    accuracies = {"accuracy": dict(zip(INPUTS.values(), (scale, f"{scale}, {a.PLAIN}"), strict=True))}
    accuracies["interval_accuracy"] = {words: f"interval, {words}" for words in a.BOTH.values()}
    for words in a.BOTH.values():
        accuracies[f"varied_{words.split()[0]}"] = {key: f"{key}, {words}" for key in a.VARIED}
    accuracies["imbalance_accuracy"] = {f"{share:.0%} of class -1": a.unbalanced(share, True) for share in a.SHARES}
    for name, arms in accuracies.items():
        if runs.settings.issuperset(arms.values()):
            _accuracies(runs, folder, name, arms)
    for arm in ("small", "main", *a.RESIDUAL.values(), "interval, structured", "hidden representation"):
        if arm in runs.settings:
            _neurons(runs, folder, arm)
    if "small" in runs.settings:
        _alignment(runs, folder)
    for arms, plot in ((a.CLUSTERS, _clusters), (a.DIGITS | a.MIXTURES, _digits)):
        if present := [arm for arm in arms if arm in runs.settings]:
            plot(runs, folder, present)
    if runs.settings.issuperset(GRAINS):
        _crossing(runs, folder)


@dataclass
class Cloud:
    """Vectors in the plane (MDS of cosines)."""

    rows: pd.DataFrame
    label: str
    shade: str
    marker: str = "o"
    size: float = 7

    def draw(self, axes: Axes, colour: int, shift: float) -> None:
        look = {"color": self.shade, "marker": self.marker, "linewidth": 0}
        look |= {"s": self.size, "label": self.label, "alpha": 0.5 if self.marker == "o" else 1}
        axes.scatter(self.rows["mds_x"], self.rows["mds_y"], **look)


def _method(runs: Runs, arm: str, method: str) -> pd.DataFrame:
    """Return rows of one method; if it has several step sizes, each seed's best on validation data."""
    rows = runs.rows(arm, method)
    if len(rows):
        return rows
    rows = _of(runs, arm, method)
    chosen = dict(zip(sorted(rows["seed"].unique()), best(runs, arm, method, "step_size"), strict=False))
    return rows[rows["step_size"] == rows["seed"].map(chosen)]


def _accuracies(runs: Runs, folder: Path, name: str, arms: dict[str, str]) -> None:
    curves = {arm: [(_method(runs, arm, method), words) for method, words in METHODS.items()] for arm in arms.values()}
    low = min((rows["test_acc"].min() for pairs in curves.values() for rows, _ in pairs if len(rows)), default=100.0)
    panels = []
    for title, arm in arms.items():
        majority = runs(arm, "majority", phase="data", step=0).mean()
        series = [Curve(rows, "test_acc", words) for rows, words in curves[arm]]
        series.append(Line(y=majority, label="largest class", style=":"))
        series += [Line(y=CEILING, label="best threshold on s")] if name == "accuracy" and a.PLAIN not in arm else []
        panels.append(panel(*series, **STEP, title=title, ylabel=ACCURACY, ylim=(low - 3, 103)))
    draw(folder, name, *panels, width=6.8, height=2.4, legend=3)


def _neurons(runs: Runs, folder: Path, arm: str) -> None:
    """Draw neurons at the start and after steps 1 and 2, coloured by their state at the last of these."""
    rows = runs.rows(arm, "neurons")
    steps = sorted(rows["step"].unique())[:3]
    last = rows[(rows["step"] == steps[-1]) & (rows["neuron"] >= 0)].set_index("neuron")["nearest"]
    panels = []
    for step in steps:
        part = rows[rows["step"] == step]
        net = part[part["neuron"] >= 0]
        side = net["neuron"].map(last)
        clouds = (Cloud(net[side == 0], "ends near +u", COLOURS[1]), Cloud(net[side == 1], "ends near -u", COLOURS[0]))
        words = MDS | {"title": f"after step {step}" if step else "initial weights", "aspect": "equal"}
        words |= {"xlim": (-1.15, 1.15), "ylim": (-1.15, 1.15)}
        panels.append(panel(*clouds, Cloud(part[part["neuron"] < 0], "+u and -u", COLOURS[6], "*", 60), **words))
    slug = arm.replace(",", "").replace(" ", "_").replace(".", "")
    note = f"{arm}; seed 0; distance sqrt(2 - 2 cos); u: relevant direction"
    draw(folder, f"neurons_{slug}", *panels, width=6.8, height=2.4, note=note, legend=3)


def _alignment(runs: Runs, folder: Path) -> None:
    series = []
    for arm, words in (("small", INPUTS[True]), (f"small, {a.PLAIN}", a.PLAIN)):
        values = {step: runs(arm, "cos_mean", phase="two steps", step=step) for step in (0, 1, 2)}
        series.append(Points(values | {3: runs(arm, "cos_mean", phase="network")}, words))
    words = {"ylabel": "mean |cosine| with u", "ylim": (0, 1.05), "legend": "center right"}
    draw(folder, "alignment", panel(*series, ticks=("start", "step 1", "step 2", "end"), **words))


def _clusters(runs: Runs, folder: Path, arms: list[str]) -> None:
    columns = {"lowest_best": "worst centre's best cosine", "near_share": "share of neurons near a centre"}
    panels = []
    for column, label in columns.items():
        curves = (Curve(runs.rows(arm, "clusters"), column, arm) for arm in arms)
        panels.append(panel(*curves, **STEP, ylabel=label, ylim=(0, 1.02)))
    rows = runs.rows(arms[0], "neurons")
    rows = rows[rows["step"] == rows["step"].max()]
    marks, k = rows[rows["neuron"] < 0], int(runs.parameters(arms[0], "k")[0])
    odd = marks["neuron"].map(lambda i: (k - bin(int(-i) - 1).count("1")) % 2)  # number of signs -1 of a centre, mod 2
    clouds = [Cloud(rows[rows["neuron"] >= 0], "neurons", "#999999", size=4)]
    clouds.append(Cloud(marks[odd == 0], "centres, y = +1", COLOURS[1], "^", 22))
    clouds.append(Cloud(marks[odd == 1], "centres, y = -1", COLOURS[0], "v", 22))
    panels.append(panel(*clouds, **MDS, aspect="equal"))
    note = f"{SPREAD}; right: {arms[0]}, seed 0, at the end"
    draw(folder, "clusters", *panels, width=6.8, height=2.7, note=note, legend=3)


def _digits(runs: Runs, folder: Path, arms: list[str]) -> None:
    panels = []
    for arm in arms:
        curves = (Curve(runs.rows(arm, phase), column, words) for (phase, column), words in PARTS.items())
        title = arm.removeprefix("digits, ")
        panels.append(panel(*curves, **STEP, title=title, ylim=(0, 102), ylabel=ACCURACY))
    draw(folder, "digits", *panels, columns=2, width=6.8, height=2.3, legend=2)
    rows = runs.table[runs.table["phase"].str.startswith("U-curve") & runs.table["event"].str.contains("end")]
    if rows.empty:
        return
    curve = Points({size: part["test_loss"] for size, part in rows.groupby("size")}, "teachers")
    picked = np.unique(runs(rows["setting"].iloc[0], "teacher_by_rule", phase="labels", step=0))
    lines = [Line(x=size, label="" if i else "first minimum, some seed", style=":") for i, size in enumerate(picked)]
    words = {"xlabel": "hidden units of the teacher", "ylabel": "test loss on digits (nats)", "legend": "center right"}
    draw(folder, "u_curve", panel(curve, *lines, log="x", ticks=sorted(curve.values), ylim=(0, None), **words))


def _crossing(runs: Runs, folder: Path) -> None:
    named = {count: labels for labels, count in a.GRAINS.items() if labels != "random"}
    random = a.GRAINS["random"] * 1.08

    def series(column: str, **where: object) -> list[Points]:
        arms = [({n: a.grain(labels, s) for n, labels in named.items()}, words, True) for s, words in INPUTS.items()]
        arms += [({random: a.grain("random", s)}, f"{words}, random IDs", False) for s, words in INPUTS.items()]
        return [points(runs, by_count, column, words, line=line, **where) for by_count, words, line in arms]

    words = {"log": "x", "xlabel": "labels", "ticks": list(named)}
    accuracy = {"ylabel": "test accuracy on parity (%)", "ylim": (45, 103)}
    left = panel(*series("test_acc", phase="network"), Line(y=50, label="guessing", style=":"), **words, **accuracy)
    cosine = {"ylabel": "mean |cosine| with u, step 2", "ylim": (0, 1.05)}
    right = panel(*series("cos_mean", phase="two steps", step=2), **words, **cosine)
    draw(folder, "granularity", left, right, height=2.8, legend=3)
