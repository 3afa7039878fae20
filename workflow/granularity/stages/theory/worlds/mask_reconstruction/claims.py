"""Claims of mask reconstruction (how to read them: `theory.statements`), and figures, drawn if their arms were run.

A: exact identities. B: the simulations' claims. P: the paper's own statements. C: the crossing with label granularity.
R: other settings. G: the parameters of the baselines, and the ingredients of masking one at a time.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from granularity.claims import published
from granularity.claims.claim import Claim
from granularity.stages.theory import statements
from granularity.stages.theory.figures import SPREAD, Curve, Line, Points, draw, panel, points
from granularity.stages.theory.statements import Runs, minus, swept
from granularity.stages.theory.worlds.mask_reconstruction import settings as a
from granularity.stages.theory.worlds.mask_reconstruction.settings import Settings

FROM_SCRATCH = [arm for *_, arm in swept(a.FREE, a.SCRATCHES, a.MORE_SCRATCHES)]
TAILS = (a.STABLE, a.PAPER, a.JOINT, "fixed blocks")
NAMES: dict[str, Any] = {f"OTHER_{i}": {tail: f"{name}, {tail}" for tail in TAILS} for i, name in enumerate(a.MORE, 1)}
NAMES |= dict(BASELINES=[a.JOINT, a.BLOCK, *FROM_SCRATCH, *(arm for *_, arm in swept(a.FIXED, a.BLOCKED))])
NAMES |= dict(TEACHERS={"stable teacher": (a.STABLE, a.JOINT), "the paper's teacher": (a.PAPER, a.JOINT)})
NAMES |= dict(AGAINST_SCRATCH=[(a.STABLE, arm) for arm in (a.JOINT, *FROM_SCRATCH)], ALL_MUS=tuple(a.MUS.values()))
NAMES |= dict(INGREDIENTS=[(arm, base) for arm in (a.GAIN, a.MASKS, a.AVERAGE) for base in (a.STABLE, a.JOINT)])
IN = zip(("IN_2", "IN_5", "IN_CLASSES", "IN_RANDOM", "IN_VIEWS"), a.CROSSED.items(), strict=True)
NAMES |= {name: {label: (arm, a.CROSSED[a.CLASSES])} for name, (label, arm) in IN}
NAMES |= dict(STABLE_VIEWS=(a.STABLE, a.CROSSED[a.VIEWS]), WIDER=list(a.WIDE))
NAMES |= dict(LONGER_COMPARED={label: (a.LONGER[label], a.LONGER[a.CLASSES]) for label in (a.VIEWS, a.RANDOM)})
NAMES |= dict(AVERAGE=a.AVERAGE, BLOCK=a.BLOCK, CROSSED=a.CROSSED, ENDLESS=a.ENDLESS, EXACT=a.EXACT, GAIN=a.GAIN)
NAMES |= dict(JOINT=a.JOINT, LITERAL=a.LITERAL, LONGER=a.LONGER, MASKS=a.MASKS, MUS=a.MUS, PAPER=a.PAPER)
NAMES |= dict(STABLE_HEAD=a.STABLE_HEAD, PAPER_HEAD=a.PAPER_HEAD, JOINT_HEAD=a.JOINT_HEAD)
NAMES |= dict(HEADS=(a.STABLE_HEAD, a.JOINT_HEAD), EXPECTED="set before these arms were run; expected to hold")
NAMES["AS_TAU"] = "set before this arm was run; expected to fail, as P2-tau"
NAMES |= dict(PAPER_ROOT=a.PAPER_ROOT, STABLE=a.STABLE, STABLE_ROOT=a.STABLE_ROOT)


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge A1 to A8, B1 to B13, G1 to G3, P1 to P8, C1 to C6 and R1 to R4 (see the module)."""
    functions = exponent, share_captured, kernel_steps, rises, best_met, largest, on_images
    return statements.judge(table, statements.tables("mask_reconstruction")["statements"], NAMES, *functions)


def exponent(runs: Runs, arm: str) -> dict[str, Any]:
    q = runs.table.loc[runs.table["setting"] == arm, "q"]
    slope = 2 * int(q.iloc[0]) - 1 if len(q) else 15
    fields = {"quantity": f"exponent of the growth law (2q - 1 = {slope})", "low": slope - 0.05, "high": slope + 0.05}
    return fields | {"values": runs.value("identities: growth_exponent", arm)}


def share_captured(runs: Runs, arm: str) -> dict[str, Any]:
    captured = runs(arm, "captured", phase="pretrain") == 20
    return {"values": [captured.mean()] if captured.size else [], "seeds": captured.size}


def kernel_steps(runs: Runs, arm: str) -> np.ndarray:
    """Return the updates of mask reconstruction, one value per seed."""
    return runs.rows(arm, "pretrain").groupby("seed")["step"].max().to_numpy(dtype=float)


def rises(runs: Runs, *arms: str) -> Any:
    """Return the smallest rise of single-view accuracy from one arm to the next, or (last argument) the total rise."""
    *arms, which = arms
    curve = [runs(arm, "single_accuracy", phase="finetune") for arm in arms]
    if not all(map(len, curve)):
        return []
    return np.diff(curve, axis=0).min(0) if which == "least" else minus(curve[-1], curve[0])


def on_images(runs: Runs) -> list[float]:
    arms = ("mask reconstruction", "supervised")
    masked, supervised = (published.number("mask_reconstruction", table="T1", arm=arm) for arm in arms)
    return [masked - supervised]


def largest(runs: Runs, arm: str) -> dict[str, Any]:
    eigenvalue = runs(arm, "lambda_max", phase="pretrain", step=600)
    return {"values": eigenvalue * runs.parameters(arm, "width")[0], "high": math.log(10) ** 2}


def best_met(runs: Runs) -> dict[str, Any]:
    trained = runs.table[runs.table["task"] == "train"].drop_duplicates("setting")
    rows = trained.drop(columns=["setting", "seed"]).to_dict("records")
    met = [np.mean(list(Settings.model_construct(**row).conditions().values())) for row in rows]
    best = int(np.argmax(met)) if met else 0
    return {"values": [max(met)], "arms": [trained["setting"].iloc[best]]} if met else {"values": []}


# ---------------------------------------------------------------- figures

METHODS = {a.STABLE: "masks, stable\nteacher", a.PAPER: "masks, paper's\nteacher"}
METHODS |= {a.JOINT: "labels only,\nfree head", a.BLOCK: "labels only,\nfixed head"}
GRAINS = ("2\ngroups", "5\ngroups", "10\nclasses", "20\nrandom", "20\nviews")  # of `CROSSED`
COUNTS = {"kernels_above": "kernels\nabove", "fused": "on two\nor more"}
COUNTS |= {"fused_within_class": "both views\nof a class", "pure_winners": "pure\nwinners"}
COUNTS |= {"outside_crossings": "taken by\noutsiders"}
SINGLE = "accuracy on single-view samples"


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw growth, accuracies, views, purity, teacher, granularity, baselines; the paper plots none of its theory."""
    runs = Runs(table)
    for needed, plot in (
        ({a.STABLE, a.ENDLESS}, _growth),
        ({*METHODS, *a.MUS.values()}, _accuracies),
        ({*METHODS}, _views),
        ({a.STABLE, a.PAPER}, _purity),
        ({a.EXACT}, _teacher),
        ({a.STABLE, *a.CROSSED.values()}, _granularity),
        ({a.STABLE, a.JOINT, a.BLOCK}, _baselines),
    ):
        if needed <= runs.settings:
            plot(runs, folder)


def _growth(runs: Runs, folder: Path) -> None:
    lambdas = {"lambda_max": "strongest", "lambda_median": "median", "lambda_min": "weakest"}
    titles = {a.STABLE: "stable teacher, stopped at full capture", a.ENDLESS: "the paper's teacher, never stopped"}
    panels = []
    for arm, title in titles.items():  # runs stop at different steps: a line per seed
        rows = runs.rows(arm, "pretrain")
        curves = (Curve(rows, y, f"{name} of the 20 semantics", each=True) for y, name in lambdas.items())
        words = {"title": title, "xlabel": "step of mask reconstruction", "ylabel": "largest correlation / threshold"}
        words |= {"log": "y", "legend": "best"} if arm == a.ENDLESS else {"ylim": (0, None)}
        panels.append(panel(*curves, Line(y=1, label="captured"), **words))
    draw(folder, "growth", *panels, note="one line per seed")


def _accuracies(runs: Runs, folder: Path) -> None:
    kinds = {"multi": "multi-view test set", "single": "single-view test set"}
    words = {"ylim": (0.3, 1.03), "ylabel": "accuracy", "legend": "lower left"}
    left, right = (
        [points(runs, arms, f"{kind}_accuracy", label, line, phase="finetune") for kind, label in kinds.items()]
        for arms, line in ((METHODS.keys(), False), (a.MUS.values(), True))
    )
    left = panel(*left, Line(y=0.5, style=":"), ticks=METHODS.values(), **words)
    words |= {"xlabel": "share of single-view samples in training, $\\mu$", "title": "labels only, fixed head"}
    right = panel(*right, ticks=[f"{mu:g}" for mu in a.MUS], **words)
    draw(folder, "accuracies", left, right, height=2.8, width=8, note=f"{SPREAD}; dotted: one half")


def _views(runs: Runs, folder: Path) -> None:
    columns = [name for name in runs.table.columns if name.startswith("view_accuracy_")]
    panels = []
    for colour, (arm, title) in enumerate(METHODS.items()):
        rows = runs.rows(arm, "finetune")
        ends = rows.loc[rows["event"].str.contains("end"), columns].to_numpy(float)
        lines = [Line(np.arange(1, len(columns) + 1), np.sort(row), style="-", colour=colour) for row in ends]
        levels = (Line(y=0.5, style=":"), Line(y=0.9, style=":"))
        words = {"xlabel": "semantic, sorted", "ylabel": "accuracy where only it is strong", "ylim": (-0.05, 1.05)}
        panels.append(panel(*lines, *levels, title=title, ticks=[1, 10, 20], **words))
    note = "one line per seed; dotted: a view is lost below 0.5, works above 0.9"
    draw(folder, "views", *panels, width=6.8, height=2.2, note=note)


def _purity(runs: Runs, folder: Path) -> None:
    counts, captures = [], []
    for colour, (arm, label) in enumerate({a.STABLE: "stable teacher", a.PAPER: "paper's teacher"}.items()):
        values = {place: runs(arm, column, phase="pretrain") for place, column in enumerate(COUNTS)}
        counts.append(Points(values, label, line=False))
        pure = zip(kernel_steps(runs, arm), runs(arm, "pure_winners", phase="pretrain"), strict=True)
        captures.append(Points({step: [winners] for step, winners in pure}, label, colour, False))
    words = {"ticks": COUNTS.values(), "ylabel": "count at full capture", "legend": "best"}
    left = panel(*counts, dodge=0.16, **words)
    words = {"xlabel": "steps to full capture", "ylabel": "winners with one semantic only", "ylim": (0, 21)}
    level = Line(y=20, label="one semantic a kernel (Theorem 1b)")
    draw(folder, "purity", left, panel(*captures, level, legend="lower left", **words), width=8)


def _teacher(runs: Runs, folder: Path) -> None:
    rows = runs.table[(runs.table["setting"] == a.EXACT) & runs.table["phase"].str.startswith("one sample")]
    rows = rows[rows["seed"] == rows["seed"].min()]
    q, series = int(rows["q"].iloc[0]), []
    for colour, (phase, part) in enumerate(rows.groupby("phase", sort=False)):
        kappa, held = (text.split()[-1 if i == 0 else 0] for i, text in enumerate(phase.split(", ")[1:]))
        words = f"$\\kappa$ = {kappa}, {held} semantic{'s' * (held != '1')}"
        series.append(Curve(part, "weight", words, colour=colour))
        left = 1 - float(kappa) * int(held)
        series += [Line(y=(1 - 1 / q) / left, style=":", colour=colour)] if left > 0 else []
    words = {"xlabel": "step", "ylabel": "correlation / threshold", "xlim": (0, 400), "legend": "best"}
    note = "one noiseless sample, eta = 0.1 (kappa 0.3), 0.02 (1); dotted: fixed points"
    draw(folder, "teacher", panel(*series, log="y", yticks=[1, 2, 5, 10, 100, 1000], **words), note=note)


def _granularity(runs: Runs, folder: Path) -> None:
    phases = {"finetune": "fine-tuned to the 10 classes", "probe": "frozen, linear head"}
    phases["pretrain"] = "on the pretraining labels"
    panels = []
    for column, label, limits, shown in (
        ("single_accuracy", SINGLE, (0.4, 1.03), phases),
        ("views_per_class", "views per class that work", (0.8, 2.07), {"finetune": "supervised labels"}),
    ):
        series = [points(runs, a.CROSSED.values(), column, words, False, phase=phase) for phase, words in shown.items()]
        masks = Line(y=runs(a.STABLE, column, phase="finetune").mean(), label="mask reconstruction, fine-tuned")
        words = {"ylabel": label, "ylim": limits, "xlabel": "pretraining labels", "legend": "lower right"}
        panels.append(panel(*series, masks, dodge=0.16, ticks=GRAINS, **words))
    draw(folder, "granularity", *panels, height=2.8)


def _baselines(runs: Runs, folder: Path) -> None:
    rows = runs.table[(runs.table["phase"] == "finetune") & runs.table["event"].str.contains("end")]
    panels = []
    for key, label, families in (
        ("sigma_0", "initial scale of the kernels", {a.JOINT: a.FREE, a.BLOCK: a.FIXED}),
        ("m", "kernels per class, from scratch", {a.JOINT: a.FREE}),
        ("eta_1", "kernels' step size, from scratch", {a.JOINT: a.FREE}),
    ):
        series = []
        for default, name in families.items():
            head = name.partition("{")[0] + key + " "
            members = rows[rows["setting"].str.startswith(head) | (rows["setting"] == default)]
            series.append(Points({v: part["single_accuracy"] for v, part in members.groupby(key)}, default))
        level = Line(y=runs(a.STABLE, "single_accuracy", phase="finetune").mean(), label=a.STABLE)
        words = {"ticks": sorted({v for group in series for v in group.values}), "xlabel": label, "ylabel": SINGLE}
        words |= {"ylim": (0.4, 1.02), "log": "" if key == "sigma_0" else "x", "legend": "" if panels else "best"}
        panels.append(panel(*series, level, **words))
    draw(folder, "baselines", *panels, width=8)
