"""World 1's figures, drawn from the run table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from granularity.stages.theory import figures as draw
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.label_granularity.arms import (
    COARSE,
    EQUAL_LOSS,
    EQUAL_STEP,
    FINE,
    LONG,
    LONG_FINE,
    RANDOM,
    SCALES,
    SWEEP,
    WITHIN,
)
from granularity.stages.theory.worlds.label_granularity.claims import first


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """Five figures: responses, separation with k, decisions under disturbance, granularity, the log law."""
    scales = [s for s in SCALES if (table["setting"] == COARSE.format(s)).any()]
    _draw_responses(table, folder)
    _draw_separation(table, folder, [s for s in scales if s != "P"])
    _draw_decisions(table, folder, [s for s in scales if s in "ABC"])
    _draw_granularity(table, folder)
    _draw_log_law(table, folder)


def _arm(table: pd.DataFrame, setting: str) -> pd.DataFrame:
    return table[(table["setting"] == setting) & (table["phase"] == "train")]


def _draw_responses(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(2)
    titles = ((LONG, "2 coarse labels"), (LONG_FINE, "2k fine labels, summed over subclasses"))
    top = 0.0
    for axes, (arm, title) in zip(panels, titles, strict=True):
        rows = _arm(table, arm)
        rows = rows[rows["step"] > 0]
        top = max(top, 1.05 * rows["normal_own"].max())
        draw.curve(axes, rows, "step", "normal_own", "own superclass, normal samples", 0)
        draw.curve(axes, rows, "step", "hard_own", "own superclass, hard samples", 1)
        draw.curve(axes, rows, "step", "hard_other", "other superclass, hard samples", 6, ":")
        axes.set(title=title, xscale="log", xlabel="training step")
    for axes in panels:
        axes.set_ylim(-0.03 * top, top)
    panels[0].set_ylabel("network response F (nats)")
    panels[0].legend(loc="upper left")
    draw.save(figure, folder, "responses")


def _draw_separation(table: pd.DataFrame, folder: Path, scales: list[str]) -> None:
    figure, (axes,) = draw.canvas(1)
    ks = [first(table, COARSE.format(s), "k") for s in scales]
    for index, (arm, label) in enumerate(((FINE, "fine labels, summed"), (COARSE, "coarse labels"))):
        draw.points(axes, ks, [at(table, arm.format(s), "hard_own") for s in scales], label, index)
    normal = np.nanmean([value for s in scales for value in at(table, COARSE.format(s), "normal_own")])
    axes.plot(ks, [normal / (k + 1) for k in ks], ":", color="black", label="normal response / (k + 1)")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="subclasses per superclass, k",
        ylabel="response to hard samples (nats)",
    )
    axes.set_xticks(ks, [f"{k:g}" for k in ks])
    axes.minorticks_off()
    axes.legend()
    draw.save(figure, folder, "separation")


def _draw_decisions(table: pd.DataFrame, folder: Path, scales: list[str]) -> None:
    figure, panels = draw.canvas(len(scales), width=6.8, height=2.4)
    heads = (
        (COARSE, "sum", "coarse"),
        (FINE, "sum", "fine, sum"),
        (FINE, "pruned", "fine, pruned"),
        (FINE, "max", "fine, max"),
    )
    shown = {"0": "hard_accuracy{}", "1": "accuracy_{}_1_distractor", "2": "accuracy_{}_2_distractors"}
    shown["4"] = "accuracy_{}_4_distractors"
    for axes, scale in zip(panels, scales, strict=True):
        for index, (arm, head, label) in enumerate(heads):
            names = [n.format(("" if head == "sum" else "_" + head) if x == "0" else head) for x, n in shown.items()]
            values = [at(table, arm.format(scale), name) for name in names]
            draw.points(axes, [i + 0.08 * (index - 1.5) for i in range(len(shown))], values, label, index)
        k = first(table, COARSE.format(scale), "k")
        axes.set(title=f"k = {k:g} subclasses", xlabel="distracting patches", ylim=(-0.05, 1.05))
        axes.set_xticks(range(len(shown)), list(shown))
    panels[0].set_ylabel("accuracy on hard samples")
    panels[0].legend()
    draw.save(figure, folder, "decisions")


def _draw_granularity(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(3, width=6.8)
    gs = list(SWEEP)
    curves = (
        (SWEEP, "step 0.2 g"),
        ({1: SWEEP[1], **EQUAL_STEP}, "equal step"),
        (EQUAL_LOSS, "equal loss"),
    )
    measures = (
        ("response to hard samples (nats)", lambda arm: at(table, arm, "hard_own")),
        ("response, hard / normal", lambda arm: _share(table, arm)),
        ("hard accuracy, 2 distractors", lambda arm: at(table, arm, "accuracy_sum_2_distractors")),
    )
    for axes, (label, of) in zip(panels, measures, strict=True):
        for index, (arms, how) in enumerate(curves):
            shown = [g for g in gs if len(of(arms[g]))]
            draw.points(axes, [g * 1.06 ** (index - 1) for g in shown], [of(arms[g]) for g in shown], how, index)
        for index, (arm, how) in enumerate(((WITHIN, "random IDs in superclasses"), (RANDOM, "random IDs")), 3):
            if len(of(arm)):
                draw.points(axes, [8 * 1.06 ** (index - 1)], [of(arm)], how, index, line=False)
        axes.set(xscale="log", xlabel="labels per superclass, g", ylabel=label)
        axes.set_xticks(gs, [str(g) for g in gs])
        axes.minorticks_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    draw.save(figure, folder, "granularity")


def _share(table: pd.DataFrame, arm: str) -> np.ndarray:
    """Hard over normal response, NaN where a network that died answers neither."""
    hard, normal = at(table, arm, "hard_own"), at(table, arm, "normal_own")
    return np.divide(hard, normal, out=np.full_like(hard, np.nan), where=normal > 0.1)


def _draw_log_law(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2)
    rows = _arm(table, LONG)
    rows = rows[rows["step"] >= 5]
    k = first(table, LONG, "k")
    draw.curve(left, rows, "step", "normal_own", "normal samples", 0)
    steps = np.array(sorted(rows["step"].unique()))
    mean = rows.groupby("step")["normal_own"].mean()
    eta, s, P, n, beta = (first(table, LONG, key) for key in ("eta", "signal", "patches", "n_act", "beta"))
    rate = eta * s**2 * n / (2 * P) * (1 + 1 / k) * (1 - beta)
    later = steps[steps >= 200]
    if len(later):
        law = np.log(np.exp(mean[200]) + rate * (later - 200))
        left.plot(later, law, "--", color="black", label="ln(C (t - 200) + exp F(200))")
    left.set(xscale="log", xlabel="training step", ylabel="coarse response F (nats)")
    left.legend()
    ratio = rows.assign(ratio=rows["hard_own"] / rows["normal_own"])
    draw.curve(right, ratio, "step", "ratio", "measured", 0)
    right.axhline(1 / (k + 1), color="black", linestyle="--", linewidth=1, label=f"1 / (k + 1), k = {k:g}")
    right.set(xscale="log", xlabel="training step", ylabel="coarse response, hard / normal", ylim=(0, 1.5 / (k + 1)))
    right.legend()
    draw.save(figure, folder, "log_law")
