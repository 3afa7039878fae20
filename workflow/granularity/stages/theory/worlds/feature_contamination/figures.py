"""World 4's figures, drawn from the run table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from granularity.stages.theory import figures as draw
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.feature_contamination import arms as a
from granularity.stages.theory.worlds.feature_contamination.claims import first, kept

OOD = "out of distribution, $z_{bg}$ ~ U[−1, 0]"


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """Nine figures: 3(b), 7, 8, 9, 10 of the paper, its mechanism, size and clock, and the crossing."""
    for one in (_risks, _mechanism, _activity, _neurons, _clock, _sizes, _regression, _shells, _granularity):
        one(table, folder)


def _arm(table: pd.DataFrame, setting: str) -> pd.DataFrame:
    return table[(table["setting"] == setting) & (table["phase"] == "train")]


def _over_steps(axes: Axes, **labels: object) -> None:
    axes.set_xscale("symlog", linthresh=10)
    axes.set(xlabel="training step", xlim=(0, None), **labels)


def _risks(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(2, 2, height=2.2)
    for (top, bottom), arm in zip(((panels[0], panels[2]), (panels[1], panels[3])), (a.RELU, a.LINEAR), strict=True):
        rows = _arm(table, arm)
        draw.curve(top, rows, "step", "id_risk", "in distribution", 0)
        draw.curve(top, rows, "step", "ood_risk", "$z_{bg}$ ~ U[−1, 0]", 1)
        draw.curve(top, rows, "step", "worst_risk", "$z_{bg}$ = −1", 6, ":")
        draw.curve(bottom, rows, "step", "core_norm", "core features", 2)
        draw.curve(bottom, rows, "step", "bg_norm", "background features", 3, "--")
        _over_steps(top, title=arm, ylim=(-0.03, 1.1))
        _over_steps(bottom, ylim=(0, 0.8))
    panels[0].set_ylabel("hinge risk")
    panels[2].set_ylabel("mean norm of a neuron's weights")
    panels[0].legend(loc="lower left")
    panels[3].legend(loc="upper left")
    draw.save(figure, folder, "risks")


def _mechanism(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2)
    arms = ((a.RELU, a.RELU), (a.QUARTER, "ReLU, background mean ¼"), (a.CENTRED, "ReLU, centred background"))
    arms += ((a.PROJECTED, "ReLU, core gradient only"), (a.LINEAR, "identity"))
    styles = ("-", "-", "--", ":", "-.")
    tests = ("one", "zero", "half", "ood", "worst")
    for index, ((arm, label), style) in enumerate(zip(arms, styles, strict=True)):
        draw.curve(left, _arm(table, arm), "step", "bg_sum", label, index, style)
        values = [at(table, arm, f"{test}_risk") for test in tests]
        if all(map(len, values)):
            draw.points(right, np.arange(5) + 0.06 * (index - 2), values, label, index)
    _over_steps(left, ylabel="background weight  ½ Σ$_{bg}$ ⟨w, m$_j$⟩")
    left.legend()
    right.set_xticks(range(5), ["+1", "0", "U[−½, 0]", "U[−1, 0]", "−1"])
    right.set(xlabel="test background $z_{bg}$", ylabel="hinge risk", ylim=(-0.03, 1.1))
    draw.save(figure, folder, "mechanism")


def _activity(table: pd.DataFrame, folder: Path) -> None:
    figure, (axes,) = draw.canvas(1)
    for index, arm in enumerate((a.RELU, a.LINEAR)):
        rows = _arm(table, arm)
        for column, style, words in (("rate_pos", "-", "positive class"), ("rate_neg", "--", "other class")):
            draw.curve(axes, rows, "step", column, f"{arm}, {words}", index, style)
    _over_steps(axes, ylabel="share of samples with ⟨w, x⟩ > 0", ylim=(-0.03, 1.03))
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.45))
    draw.save(figure, folder, "activity")


def _neurons(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(2)
    rows = _arm(table, a.RELU)
    rows = rows[rows["seed"] == 0] if len(rows) else rows
    count = int(first(table, a.RELU, "neurons")) if len(rows) else 0
    for axes, name in zip(panels, ("plus", "minus"), strict=True):
        shown = set()
        for k in range(count):
            plus = rows[f"neuron_{k}_sign"].iloc[0] > 0
            label = "$a_k$ > 0" if plus else "$a_k$ < 0"
            new = None if label in shown else label
            style = {
                "color": draw.COLOURS[0 if plus else 1],
                "linestyle": "-" if plus else "--",
                "linewidth": 1,
            }
            axes.plot(rows["step"], rows[f"neuron_{k}_{name}"], label=new, **style)
            shown.add(label)
        _over_steps(axes, title=f"samples of y = {'+1' if name == 'plus' else '−1'}", ylim=(-1, 4.5))
    panels[0].set_ylabel("mean pre-activation E⟨w$_k$, x⟩")
    panels[1].legend()
    draw.save(figure, folder, "neurons", "ten neurons of one ReLU network (seed 0), in distribution")


def _clock(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2)
    arms = ((a.RELU, "lr 0.5, N = 256"), (a.SLOW, "lr 0.1, N = 256"), (a.MOMENTUM, "lr 0.001, momentum 0.9"))
    arms += ((a.LETTER, "lr 0.001, as printed"), (a.SCRIPT, "authors' script (fixed data)"))
    for index, (arm, label) in enumerate(arms):
        rows = _arm(table, arm)
        s = rows["step"] * rows["lr"] / (1 - rows["momentum"])
        rows = rows.assign(s=s.round(9))
        rows = rows[rows["s"] > 0]
        for axes, column in ((left, "id_risk"), (right, "ood_risk")):
            draw.curve(axes, rows, "s", column, label, index, ("-", "--", "-", "--", ":")[index], mark=True)
    for axes, title in ((left, "in distribution"), (right, OOD)):
        axes.set(xscale="log", title=title, xlabel="time  s = lr × steps / (1 − momentum)", ylim=(-0.03, 1.1))
        axes.set_xlim(0.5, None)
    left.set_ylabel("hinge risk")
    left.legend()
    draw.save(figure, folder, "clock")


def _sizes(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2)
    for index, arms in enumerate(({32: a.RELU} | a.WIDE, {32: a.LINEAR} | a.WIDE_LINEAR)):
        for axes, column in ((left, "ood_risk"), (right, "ood_acc")):
            values = {n: at(table, arm, column) for n, arm in arms.items()}
            values = {n: v for n, v in values.items() if len(v)}
            if values:
                draw.points(axes, list(values), list(values.values()), ("ReLU", "identity")[index], index)
            axes.set(xlabel="background features (core features: 32)", xticks=list(arms))
    left.set(ylabel="OOD hinge risk", ylim=(-0.03, 1.1))
    right.set(ylabel="OOD accuracy", ylim=(0.45, 1.03))
    right.axhline(0.5, color="#555555", linestyle=":", linewidth=1)
    right.annotate("chance", (32, 0.51), fontsize=7, color="#555555")
    left.legend(loc="center left")
    draw.save(figure, folder, "background_size")


def _regression(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(3, width=6.8, height=2.4)
    for axes, (phi, name) in zip(panels, (("relu", "ReLU"), ("identity", "identity")), strict=False):
        rows = _arm(table, a.REGRESSION["yz", phi])
        for index, (column, label) in enumerate((("id_risk", "ID"), ("ood_risk", "OOD"))):
            draw.curve(axes, rows, "step", column, label, index)
        _over_steps(axes, title=f"{name}, yz from yz", yscale="log", ylim=(1e-6, 30))
    panels[0].set_ylabel("mean squared error a coordinate")
    panels[0].legend()
    axes = panels[2]
    for i, (phi, name) in enumerate((("relu", "ReLU"), ("identity", "identity"))):
        for j, test in enumerate(("id", "ood")):
            values = [at(table, a.REGRESSION[target, phi], f"{test}_risk") for target in a.TARGETS]
            if all(map(len, values)):
                x = np.arange(3) + 0.1 * (2 * i + j - 1.5)
                draw.points(axes, x, values, f"{name}, {test.upper()}", 2 * i + j, line=False)
    axes.set_xticks(range(3), ["z, z", "yz, z", "yz, yz"])
    axes.set(title="input core, target", yscale="log", ylim=(1e-6, 3000))
    axes.legend(loc="upper right", ncols=2, columnspacing=0.8, handletextpad=0.2)
    draw.save(figure, folder, "regression")


def _shells(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(3, width=6.8, height=2.5)
    for index, (phi, arm) in enumerate(a.SHELLS.items()):
        rows = _arm(table, arm)
        draw.curve(panels[0], rows, "step", "id_risk", a.ACTIVATIONS[phi], index)
        draw.curve(panels[1], rows, "step", "ood_risk", a.ACTIVATIONS[phi], index)
    for axes, title in zip(panels, ("in distribution", OOD.split(",")[0]), strict=False):
        _over_steps(axes, title=title, yscale="log", ylim=(1e-4, 30))
    panels[0].set_ylabel("logistic loss (nats)")
    panels[0].legend()
    groups = (a.SHELLS, a.SHELLS_FIXED, a.SHELLS_CENTRED)
    for index, (arms, label) in enumerate(zip(groups, ("fresh", "1000 fixed", "centred"), strict=True)):
        found = {phi: at(table, arm, "ood_acc") for phi, arm in arms.items()}
        found = {phi: v for phi, v in found.items() if len(v)}
        x = [list(a.ACTIVATIONS).index(phi) + 0.12 * (index - 1) for phi in found]
        if found:
            draw.points(panels[2], x, list(found.values()), label, index, line=False)
    panels[2].set_xticks(range(4), a.ACTIVATIONS.values())
    panels[2].set(ylabel="OOD accuracy", ylim=(-0.03, 1.6), yticks=(0, 0.25, 0.5, 0.75, 1))
    panels[2].legend(loc="upper center", title="training data", title_fontsize=7, ncols=2, columnspacing=0.6)
    draw.save(figure, folder, "shells")


def _granularity(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(3, width=6.8, height=2.6)
    for axes, measure in zip(panels, ("ood_risk", "kept", "bg_sum"), strict=True):

        def of(arm: str, measure: str = measure) -> np.ndarray:
            return kept(table, arm, "ood") if measure == "kept" else at(table, arm, measure)

        arms = (
            (a.LABELS, "subclass, hinge", True),
            (a.LABELS_LINEAR, "subclass, hinge, identity", True),
            (a.SOFTMAX, "subclass, cross-entropy", True),
            ({4: a.RANDOM}, "random IDs, hinge", False),
            ({4: a.RANDOM_SOFTMAX}, "random IDs, cross-entropy", False),
            ({4: a.OF_BACKGROUND}, "by background, hinge", False),
        )
        for index, (group, label, line) in enumerate(arms):
            found = {2 * g: of(arm) for g, arm in group.items() if len(of(arm))}
            if measure == "kept":  # a share of next to nothing says nothing
                found = {n: v for n, v in found.items() if at(table, group[n // 2], "id_margin").mean() > 0.05}
            if found:
                x = [n * 1.05 ** (index - 2.5) for n in found]
                draw.points(axes, x, list(found.values()), label, index, line)
        axes.set(xscale="log", xlabel="training labels")
        axes.set_xticks([2, 4, 8], ["2", "4", "8"])
        axes.minorticks_off()
    panels[0].set(ylabel="OOD hinge risk, class head")
    panels[1].set(ylabel="share of the margin kept OOD", ylim=(-0.03, 1.05))
    panels[2].set(ylabel="background weight")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    note = draw.SPREAD + "; random IDs, hinge: no margin in distribution, so none to keep"
    draw.save(figure, folder, "granularity", note)
