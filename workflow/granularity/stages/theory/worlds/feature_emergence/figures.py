"""World 3's figures, drawn from the run table. Names say which figures of the paper they re-plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from granularity.stages.theory import figures as draw
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.feature_emergence.arms import (
    BOTH,
    CLUSTERS,
    DIGITS,
    GRAINS,
    PLAIN,
    RESIDUAL,
    SHARES,
    VARIED,
    grain,
    unbalanced,
)
from granularity.stages.theory.worlds.feature_emergence.claims import best
from granularity.stages.theory.worlds.feature_emergence.data import CEILING

METHODS = {
    "network": "network",
    "random features": "random features (RF)",
    "tangent kernel": "tangent kernel (NTK)",
}
RANDOM = "random"


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw the figures whose arms are in the table."""
    there = set(table["setting"])
    scale = "main" if {"main", f"main, {PLAIN}"} <= there else "small"
    if {scale, f"{scale}, {PLAIN}"} <= there:
        arms = {"structured inputs": scale, "inputs without structure": f"{scale}, {PLAIN}"}
        _accuracies(table, folder, "accuracy", arms, ceiling=True)
    arms = {f"interval, {words} inputs": f"interval, {words}" for words in BOTH.values()}
    if set(arms.values()) <= there:
        _accuracies(
            table,
            folder,
            "interval_accuracy",
            {k.replace("without structure inputs", f"inputs {PLAIN}"): v for k, v in arms.items()},
        )
    if {f"{key}, {words}" for key in VARIED for words in BOTH.values()} <= there:
        for words in BOTH.values():
            _accuracies(table, folder, f"varied_{words.split()[0]}", {key: f"{key}, {words}" for key in VARIED})
    arms = {f"{share:.0%} of class -1": unbalanced(share, True) for share in SHARES}
    if set(arms.values()) <= there:
        _accuracies(table, folder, "imbalance_accuracy", arms)
    pictured = ("small", "main", *RESIDUAL.values(), "interval, structured", "hidden representation")
    for name in pictured:
        if name in there:
            _neurons(table, folder, name)
    if "small" in there:
        _alignment(table, folder, "small")
    clusters = [name for name in CLUSTERS if name in there]
    if clusters:
        _clusters(table, folder, clusters)
    digits = [name for name in DIGITS if name in there]
    if digits:
        _digits(table, folder, digits)
    if {grain(labels, structured) for labels in GRAINS for structured in BOTH} <= there:
        _crossing(table, folder)


def _phase(table: pd.DataFrame, setting: str, method: str) -> pd.DataFrame:
    """Rows of one method; of several step sizes, each seed's best on validation data."""
    rows = table[table["setting"] == setting]
    if method in set(rows["phase"]):
        return rows[rows["phase"] == method]
    chosen = best(table, setting, method, "step_size")
    parts = [
        rows[rows["phase"].str.startswith(method + " ") & (rows["seed"] == seed) & (rows["step_size"] == size)]
        for seed, size in zip(sorted(rows["seed"].unique()), chosen, strict=False)
    ]
    return pd.concat(parts) if parts else rows.iloc[:0]


def _accuracies(table: pd.DataFrame, folder: Path, name: str, arms: dict[str, str], ceiling: bool = False) -> None:
    figure, panels = draw.canvas(len(arms), width=6.8 if len(arms) > 1 else None, height=2.4)
    low = 100.0
    for axes, (title, arm) in zip(panels, arms.items(), strict=True):
        for index, (method, words) in enumerate(METHODS.items()):
            rows = _phase(table, arm, method)
            if len(rows):
                draw.curve(axes, rows, "step", "test_acc", words, index)
                low = min(low, rows["test_acc"].min())
        majority = at(table, arm, "majority", phase="data", step=0).mean()
        axes.axhline(majority, color="black", linestyle=":", linewidth=1, label="largest class")
        if ceiling and PLAIN not in arm:
            axes.axhline(CEILING, color="black", linestyle="--", linewidth=1, label="best threshold on s")
        axes.set(title=title, xlabel="training step")
    for axes in panels:
        axes.set_ylim(low - 3, 103)
    panels[0].set_ylabel("test accuracy (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    draw.save(figure, folder, name)


def _neurons(table: pd.DataFrame, folder: Path, arm: str) -> None:
    """Neurons in the plane (MDS of cosines), at the start and after steps 1 and 2; colours by the last."""
    rows = table[(table["setting"] == arm) & (table["phase"] == "neurons")]
    steps = sorted(rows["step"].unique())[:3]
    last = rows[(rows["step"] == steps[-1]) & (rows["neuron"] >= 0)].set_index("neuron")["nearest"]
    figure, panels = draw.canvas(len(steps), width=6.8, height=2.4)
    for axes, step in zip(panels, steps, strict=True):
        part = rows[rows["step"] == step]
        net = part[part["neuron"] >= 0]
        side = net["neuron"].map(last)
        for value, colour, words in (
            (0, draw.COLOURS[1], "ends near +u"),
            (1, draw.COLOURS[0], "ends near -u"),
        ):
            some = net[side == value]
            axes.scatter(some["mds_x"], some["mds_y"], s=7, color=colour, alpha=0.5, linewidth=0, label=words)
        marks = part[part["neuron"] < 0]
        open_star = {"facecolor": "none", "edgecolor": "black", "linewidth": 0.8, "zorder": 3}
        axes.scatter(marks["mds_x"], marks["mds_y"], marker="*", s=130, label="+u and -u", **open_star)
        axes.set(title="initial weights" if step == 0 else f"after step {step}", xlabel="MDS axis 1")
        axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
    panels[0].set_ylabel("MDS axis 2")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    slug = arm.replace(",", "").replace(" ", "_").replace(".", "")
    draw.save(figure, folder, f"neurons_{slug}", f"{arm}; seed 0; distance sqrt(2 - 2 cos); u: relevant direction")


def _alignment(table: pd.DataFrame, folder: Path, arm: str) -> None:
    figure, (axes,) = draw.canvas(1)
    steps = (0, 1, 2)
    for index, (name, words) in enumerate(((arm, "structured inputs"), (f"{arm}, {PLAIN}", PLAIN))):
        values = [at(table, name, "cos_mean", phase="two steps", step=step) for step in steps]
        values.append(at(table, name, "cos_mean", phase="network"))
        if all(map(len, values)):
            draw.points(axes, range(4), values, words, index)
    axes.set(ylabel="mean |cosine| with u", ylim=(0, 1.05))
    axes.set_xticks(range(4), ["start", "step 1", "step 2", "end"])
    axes.legend(loc="center right")
    draw.save(figure, folder, "alignment")


def _clusters(table: pd.DataFrame, folder: Path, arms: Sequence[str]) -> None:
    figure, panels = draw.canvas(3, width=6.8, height=2.7)
    shown = (("lowest_best", "worst centre's best cosine"), ("near_share", "share of neurons near a centre"))
    for axes, (column, label) in zip(panels, shown, strict=False):
        for index, arm in enumerate(arms):
            rows = table[(table["setting"] == arm) & (table["phase"] == "clusters")]
            draw.curve(axes, rows, "step", column, arm, index)
        axes.set(xlabel="training step", ylabel=label, ylim=(0, 1.02))
    _plane(table, panels[2], arms[0])
    handles, labels = panels[0].get_legend_handles_labels()
    more = panels[2].get_legend_handles_labels()
    handles, labels = handles + more[0], labels + more[1]
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    draw.save(figure, folder, "clusters", f"{draw.SPREAD}; right: {arms[0]}, seed 0, at the end")


def _plane(table: pd.DataFrame, axes: Axes, arm: str) -> None:
    rows = table[(table["setting"] == arm) & (table["phase"] == "neurons")]
    rows = rows[rows["step"] == rows["step"].max()]
    net, marks = rows[rows["neuron"] >= 0], rows[rows["neuron"] < 0]
    k = table.loc[table["setting"] == arm, "k"].iloc[0]
    odd = marks["neuron"].map(lambda i: (int(k) - bin(int(-i) - 1).count("1")) % 2)  # signs -1 a centre has
    axes.scatter(net["mds_x"], net["mds_y"], s=4, color="#999999", alpha=0.5, linewidth=0, label="neurons")
    for value, mark, colour, words in ((0, "^", 1, "centres, y = +1"), (1, "v", 0, "centres, y = -1")):
        some = marks[odd == value]
        style = {"marker": mark, "s": 22, "color": draw.COLOURS[colour], "label": words}
        axes.scatter(some["mds_x"], some["mds_y"], **style)
    axes.set(xlabel="MDS axis 1", ylabel="MDS axis 2", aspect="equal")


def _digits(table: pd.DataFrame, folder: Path, arms: Sequence[str]) -> None:
    figure, panels = draw.canvas(2, 2, width=6.8, height=2.3) if len(arms) > 2 else draw.canvas(len(arms))
    for axes, arm in zip(panels, arms, strict=False):
        rows = table[table["setting"] == arm]
        mixed, alone = (rows[rows["phase"] == f"student, {part}"] for part in ("mixture", "digits alone"))
        for index, (part, column, words) in enumerate(
            (
                (alone, "L_acc", "digits, student of digits alone"),
                (mixed, "L_acc", "digits, student of the mixture"),
                (mixed, "whole_acc", "whole mixture"),
                (mixed, "U_acc", "Gaussian inputs"),
            )
        ):
            draw.curve(axes, part, "step", column, words, index)
        axes.set(title=arm.removeprefix("digits, "), xlabel="training step", ylim=(0, 102))
    for axes in panels[:: 2 if len(arms) > 2 else 1]:
        axes.set_ylabel("test accuracy (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
    draw.save(figure, folder, "digits")
    arm = next(
        (arm for arm in arms if (table[table["setting"] == arm]["phase"].str.startswith("U-curve")).any()),
        None,
    )
    if arm is None:
        return
    rows = table[(table["setting"] == arm) & table["phase"].str.startswith("U-curve")]
    rows = rows[rows["event"].str.contains("end")]
    figure, (axes,) = draw.canvas(1)
    sizes = sorted(rows["size"].unique())
    draw.points(axes, sizes, [rows.loc[rows["size"] == size, "test_loss"] for size in sizes], "teachers")
    picked = at(table, arm, "teacher_by_rule", phase="labels", step=0)
    for i, size in enumerate(np.unique(picked)):
        words = "first minimum, some seed" if i == 0 else None
        axes.axvline(size, color="black", linestyle=":", linewidth=1, label=words)
    axes.set(xscale="log", xlabel="hidden units of the teacher", ylabel="test loss on digits (nats)")
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.legend(loc="center right")
    draw.save(figure, folder, "u_curve")


def _crossing(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(2, height=2.8)
    named = {labels: count for labels, count in GRAINS.items() if labels != RANDOM}
    for index, (structured, words) in enumerate(((True, "structured inputs"), (False, f"inputs {PLAIN}"))):
        for axes, phase, column, step in (
            (panels[0], "network", "test_acc", {}),
            (panels[1], "two steps", "cos_mean", {"step": 2}),
        ):
            read = [at(table, grain(labels, structured), column, phase=phase, **step) for labels in named]
            draw.points(axes, list(named.values()), read, f"{words}", index)
            other = at(table, grain(RANDOM, structured), column, phase=phase, **step)
            label = f"{words}, random IDs"
            draw.points(axes, [GRAINS[RANDOM] * 1.08], [other], label, index + 2, line=False)
    for axes in panels:
        axes.set(xscale="log", xlabel="labels")
        axes.set_xticks(list(named.values()), [str(count) for count in named.values()])
        axes.minorticks_off()
    panels[0].axhline(50, color="black", linestyle=":", linewidth=1, label="guessing")
    panels[0].set(ylabel="test accuracy on parity (%)", ylim=(45, 103))
    panels[1].set(ylabel="mean |cosine| with u, step 2", ylim=(0, 1.05))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    draw.save(figure, folder, "granularity")
