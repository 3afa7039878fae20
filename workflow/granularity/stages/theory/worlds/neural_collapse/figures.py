"""World 2's figures: sweeps (Figures 15 to 17), scaling, similarity (Figure 18), dynamics, theorem, granularity."""

from pathlib import Path

import numpy as np
import pandas as pd

from granularity.stages.theory.figures import SPREAD, Curve, Line, Points, draw, panel
from granularity.stages.theory.statements import Runs, over
from granularity.stages.theory.worlds.neural_collapse import claims as c

MEDIAN = "medians over seeds; bars from the 25th to the 75th percentile"
LEVELS = (1, 2, 5, 10, 20, 50, 100)
SWEEPS = {"d_in": "input dimension", "hidden": "hidden width", "decay": "weight decay"}
DYNAMICS = {
    "msdr": ("distance of merged clusters /\nwithin a cluster (MSDR)", "log", LEVELS[:5]),
    "r2": ("distance of merged clusters /\nof clusters of other labels", "linear", ()),
    "nc1": ("spread within labels, NC1", "log", (0.02, 0.05, 0.1, 0.2, 0.5)),
}
TAU2 = r"variance within similar pairs, $\tau^2$"
BETWEEN_OVER_WITHIN = "distance, mean between clusters /\nmean within a cluster"


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw all seven figures."""
    runs, ends = Runs(table), c.ends(table)
    panels = []
    for key, title in SWEEPS.items():
        rows = c.among(ends, "default", f"{key} ")
        msdr, accuracy = _common(c.curves(rows, key)), c.curves(rows, key, "accuracy")
        msdr = {value: curve for value, curve in msdr.items() if len(curve) > 3}
        series = [Points(curve, f"{value:g}") for value, curve in msdr.items()]
        rings = [
            (s, per_seed.mean())
            for v, by_s in msdr.items()
            for s, per_seed in by_s.items()
            if (accuracy[v][s] < 1).any()
        ]
        if rings:
            series.append(Line(*zip(*rings, strict=True), "training accuracy < 100 %", " ", marker="o"))
        at = sorted(set(rows["sigma2"]))
        series.append(Line(at, [1 + s for s in at], r"inputs, $1 + \sigma^2$"))
        words = {"title": title, "xlabel": r"variance of cluster means, $\sigma^2$", "ylabel": "MSDR at the end"}
        panels.append(panel(*series, **words, log="xy", ticks=at, yticks=LEVELS[:5], legend="upper left", dodge=0.06))
    draw(folder, "sweeps", *panels, width=6.8, height=2.9)
    panels = []
    for key, start, title, label in (
        ("hidden", ("default", "hidden "), "standard scaling", "hidden width"),
        ("hidden", ("mean-field",), "mean-field scaling", "hidden width"),
        ("lr", ("default", "lr "), "standard scaling", "step size"),
    ):
        msdr = _common(c.curves(c.among(ends, *start), key))
        series = [Points(_at(msdr, s), rf"$\sigma^2$ = {s:g}") for s in (1, 2, 4, 8)]
        words = {"title": title, "xlabel": label, "ylabel": "MSDR at the end"}
        panels.append(panel(*series, **words, log="xy", ticks=list(msdr), yticks=LEVELS))
    draw(folder, "width_and_step_size", *panels, width=6.8, height=2.7, legend=4)
    panels = []
    for labels, title in ((4, "coarse labels: pairs merged"), (8, "natural labels: a label each")):
        series = []
        for colour, group in enumerate(("similar", "dissimilar")):
            series.append(Points(_similar(runs, f"msdr_{group}", labels), f"{group} pairs", colour))
            inputs = _similar(runs, f"input_msdr_{group}", labels, step=0)
            series.append(_means(inputs, f"{group} pairs, inputs", ":", colour))
        words = {"xlabel": TAU2, "ylabel": "MSDR at the end", "ylim": (0.8, 25), "title": title, "log": "xy"}
        panels.append(panel(*series, legend="best", ticks=list(inputs), yticks=LEVELS[:5], **words))
    draw(folder, "similarity", *panels)
    panels = []
    for measure, (label, scale, yticks) in DYNAMICS.items():
        arms = {s: c.DEFAULTS[s] for s in ("0.5", "2", "8") if c.DEFAULTS[s] in runs.settings}
        series = [Curve(runs.rows(arm), measure, rf"$\sigma^2$ = {s}") for s, arm in arms.items()]
        words = {"xlabel": "gradient step", "ylabel": label, "yscale": scale, "ticks": (0, 10, 100, 1000)}
        panels.append(panel(*series, log="sym", yticks=yticks, **words))
    draw(folder, "dynamics", *panels, width=8, note=f"coarse labels; {SPREAD}", legend=3)
    _theorem(runs, folder)
    _granularity(runs, ends, folder)


def _common(found: c.Curves) -> c.Curves:
    """Keep the seeds that all curves have, so that their means are comparable."""
    seeds = min((len(per_seed) for curve in found.values() for per_seed in curve.values()), default=0)
    return {value: {s: per_seed[:seeds] for s, per_seed in curve.items()} for value, curve in found.items()}


def _at(found: c.Curves, s: float) -> dict[float, np.ndarray]:
    return {value: curve[s] for value, curve in found.items() if s in curve}


def _similar(runs: Runs, measure: str, labels: int, **where: int) -> dict[float, np.ndarray]:
    """Return a measure by tau^2."""
    arms = {t: f"similar {t:g}, {labels} labels" for t in c.TAU2}
    return {t: runs(arm, measure, **where) for t, arm in arms.items() if arm in runs.settings}


def _means(found: dict[float, np.ndarray], label: str, *style: object) -> Line:
    return Line(list(found), [part.mean() for part in found.values()], label, *style)


def _theorem(runs: Runs, folder: Path) -> None:
    dimensions = {words: runs.rows(arm) for words, arm in c.DIMENSIONS.items() if arm in runs.settings}
    panels = []
    for measure, label in (
        ("ratio", BETWEEN_OVER_WITHIN),
        ("worst_ratio", "distance, least between clusters /\nlargest within a cluster"),
    ):
        series: list = [
            Points({s: part[measure].to_numpy(float) for s, part in rows.groupby("clock")}, median=True, label=label)
            for label, rows in ((words.replace("d ", "d = "), rows) for words, rows in dimensions.items())
        ]
        if measure == "ratio":
            for colour, rows in enumerate(dimensions.values()):
                series.append(Line([0], [rows["input_ratio"].median()], colour=colour, style=" ", marker="<"))
        words = {"xlabel": r"clock $s = \eta \tau^3 \omega t / 8$", "ylabel": label, "xlim": (-0.1, None)}
        panels.append(panel(*series, Line(y=1), legend="" if panels else "upper left", **words))
    draw(folder, "theorem", *panels, height=2.9, note=MEDIAN + "; triangles: the inputs")

    def by_separation(measure: str, s: float) -> dict[float, np.ndarray]:
        values = {float(by): c.clock(runs, arm, measure, s) for by, arm in c.SEPARATIONS.items()}
        return {by: per_seed for by, per_seed in values.items() if per_seed is not None and len(per_seed)}

    inputs = by_separation("input_ratio", 0)
    series = [Points(by_separation("ratio", s), f"s = {s}" if s else "step 0", median=True) for s in (0, 2, 5, 20)]
    series.append(Line(list(inputs), [np.median(per_seed) for per_seed in inputs.values()], "inputs"))
    words = {"xlabel": r"norm of means / of noise, $\tau / \sqrt{d}$", "log": "xy", "legend": "upper left"}
    words |= {"ylabel": BETWEEN_OVER_WITHIN, "ticks": list(inputs), "yticks": (1, 3, 10, 30, 100, 300)}
    draw(folder, "separation", panel(*series, **words), note=MEDIAN)


def _granularity(runs: Runs, ends: pd.DataFrame, folder: Path) -> None:
    rows = c.among(ends, "default", "labels ")
    msdr, natural = c.curves(rows, "labels"), c.curves(rows, "labels", "natural_accuracy")
    at = [s for s in (0.1, 0.5, 2.0, 8.0) if any(s in curve for curve in msdr.values())]

    def start(s: float, measure: str) -> np.ndarray:
        return runs(f"default, sigma2 {s:g}", measure, step=0)

    words = {"log": "x", "xlabel": "given labels (natural: 8)", "ticks": (2, 4, 8, 16)}
    series = [
        Points({g: over(per_seed, start(s, "msdr")) for g, per_seed in _at(msdr, s).items()}, rf"$\sigma^2$ = {s:g}")
        for s in at
    ]
    left = panel(*series, Line(y=1), ylabel="MSDR at the end / at step 0", legend="upper left", **words)
    s = min(at, default=0.1)
    levels = [
        Line(y=start(s, f"{prefix}natural_accuracy").mean(), label=label, style=dash)
        for prefix, label, dash in (("", "step 0", ":"), ("input_", "inputs", "--"))
        if f"default, sigma2 {s:g}" in runs.settings
    ]
    words |= {"ylabel": f"held-out accuracy on\nnatural classes, $\\sigma^2$ = {s:g}", "legend": "lower right"}
    middle = panel(Points(_at(natural, s), "after training"), *levels, **words)
    kinds = {"coarse labels": 4, "natural labels": 8}
    series = [Points(_similar(runs, "msdr_similar", labels), label) for label, labels in kinds.items()]
    inputs = _similar(runs, "input_msdr_similar", 4, step=0)
    words = {"xlabel": TAU2, "ylabel": "MSDR of similar pairs", "log": "xy"}
    words |= {"ticks": list(inputs), "yticks": LEVELS[:5], "legend": "best"}
    right = panel(*series, _means(inputs, "inputs"), **words)
    draw(folder, "granularity", left, middle, right, width=8, height=2.7)
