"""Figures of mask reconstruction, drawn from the run table; the paper shows none of its theory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from granularity.stages.theory import figures as draw
from granularity.stages.theory.worlds.mask_reconstruction.arms import (
    BLOCK,
    CROSSED,
    ENDLESS,
    EXACT,
    FIXED,
    FREE,
    JOINT,
    MUS,
    PAPER,
    SCRATCHES,
    STABLE,
)
from granularity.stages.theory.worlds.mask_reconstruction.claims import final, kernel, kernel_steps

SWEPT = [FREE.format(key, value) for key, values in SCRATCHES.items() for value in values]
METHODS = {
    STABLE: "masks, stable\nteacher",
    PAPER: "masks, paper's\nteacher",
    JOINT: "labels only,\nfree head",
    BLOCK: "labels only,\nfixed head",
}
AXES = {  # under each granularity
    "labels: 2 groups of classes": "2\ngroups",
    "labels: 5 groups of classes": "5\ngroups",
    "labels: 10 classes": "10\nclasses",
    "labels: 20, class and random bit": "20\nrandom",
    "labels: 20, class and stronger view": "20\nviews",
}


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """Growth, accuracies, views, purity, teacher, granularity, baselines; each where its arms were run."""
    settings = set(table["setting"])
    for arms, figure in (
        ({STABLE, ENDLESS}, _draw_growth),
        ({*METHODS, *MUS.values()}, _draw_accuracies),
        ({*METHODS}, _draw_views),
        ({STABLE, PAPER}, _draw_purity),
        ({EXACT}, _draw_teacher),
        ({STABLE, *CROSSED.values()}, _draw_granularity),
        ({STABLE, JOINT, BLOCK, *SWEPT}, _draw_baselines),
    ):
        if arms <= settings:
            figure(table, folder)


def _draw_growth(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2)
    for axes, arm, title in (
        (left, STABLE, "stable teacher, stopped at full capture"),
        (right, ENDLESS, "the paper's teacher, never stopped"),
    ):
        rows = table[(table["setting"] == arm) & (table["phase"] == "pretrain")]
        # runs stop at different steps: show each seed, coloured by quantity
        for index, (column, label) in enumerate(
            (("lambda_max", "strongest"), ("lambda_median", "median"), ("lambda_min", "weakest"))
        ):
            for number, (_, one) in enumerate(rows.groupby("seed")):
                axes.plot(
                    one["step"],
                    one[column],
                    color=draw.COLOURS[index],
                    linewidth=0.9,
                    label=None if number else f"{label} of the 20 semantics",
                )
        axes.axhline(1, color="black", linestyle="--", linewidth=1, label="captured")
        axes.set(title=title, xlabel="step of mask reconstruction")
    left.set_ylabel("largest correlation / threshold")
    right.set_yscale("log")
    left.set_ylim(0, None)
    right.legend(loc="upper left")
    draw.save(figure, folder, "growth", "one line per seed")


def _draw_accuracies(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2, height=2.8)
    x = np.arange(len(METHODS))
    for index, (kind, label) in enumerate((("multi", "multi-view test set"), ("single", "single-view test set"))):
        values = [final(table, arm, f"{kind}_accuracy") for arm in METHODS]
        draw.points(left, x, values, label, index, line=False)
    left.axhline(0.5, color="black", linestyle=":", linewidth=1)
    left.set_xticks(x, list(METHODS.values()))
    left.tick_params(axis="x", labelsize=6)
    left.set(ylabel="accuracy", ylim=(0.3, 1.03), xlim=(-0.5, len(METHODS) - 0.5))
    left.legend(loc="lower left")
    mus = list(MUS)
    for index, (kind, label) in enumerate((("multi", "multi-view"), ("single", "single-view"))):
        values = [final(table, arm, f"{kind}_accuracy") for arm in MUS.values()]
        draw.points(right, range(len(mus)), values, label, index)
    right.set_xticks(range(len(mus)), [f"{mu:g}" for mu in mus])
    right.set(
        xlabel="share of single-view samples in training, $\\mu$",
        title="labels only, fixed head",
        ylim=(0.3, 1.03),
    )
    draw.save(figure, folder, "accuracies", f"{draw.SPREAD}; dotted: one half")


def _draw_views(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(len(METHODS), width=6.8, height=2.2)
    columns = [name for name in table.columns if name.startswith("view_accuracy_")]
    for index, (axes, (arm, title)) in enumerate(zip(panels, METHODS.items(), strict=True)):
        ends = table[(table["setting"] == arm) & (table["phase"] == "finetune") & table["event"].str.contains("end")]
        for _, row in ends.iterrows():
            values = np.sort(row[columns].to_numpy(dtype=float))
            axes.plot(
                np.arange(1, len(values) + 1),
                values,
                color=draw.COLOURS[index],
                marker="o",
                markersize=2,
                linewidth=0.7,
            )
        for level in (0.5, 0.9):
            axes.axhline(level, color="black", linestyle=":", linewidth=0.8)
        axes.set(title=title, xlabel="semantic, sorted", ylim=(-0.05, 1.05))
        axes.set_xticks([1, 10, 20])
        if index:
            axes.tick_params(labelleft=False)
    panels[0].set_ylabel("accuracy where only it\nis strong")
    draw.save(figure, folder, "views", "one line per seed; dotted: a view is lost below 0.5, works above 0.9")


def _draw_purity(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2)
    counts = (
        ("kernels_above", "kernels above\nthreshold"),
        ("fused", "on two\nor more"),
        ("fused_within_class", "on both views\nof a class"),
        ("pure_winners", "pure winners\n(of 20)"),
        ("outside_crossings", "semantics taken\nby outsiders\n(of 20)"),
    )
    x = np.arange(len(counts))
    for index, (arm, label) in enumerate(((STABLE, "stable teacher"), (PAPER, "paper's teacher"))):
        values = [kernel(table, arm, column) for column, _ in counts]
        draw.points(left, x + 0.16 * (index - 0.5), values, label, index, line=False)
        for axes, column in ((right, "pure_winners"),):
            steps = kernel_steps(table, arm)
            axes.plot(steps, kernel(table, arm, column), draw.MARKERS[index], color=draw.COLOURS[index], label=label)
    left.set_xticks(x, [words for _, words in counts])
    left.tick_params(axis="x", labelsize=5.5)
    left.set_ylabel("count at full capture")
    left.legend()
    right.axhline(20, color="black", linestyle="--", linewidth=1, label="one semantic a kernel (Theorem 1b)")
    right.set(xlabel="steps to full capture", ylabel="winners with one semantic only", ylim=(0, 21))
    right.set_xlim(0, None)
    right.set_yticks(range(0, 21, 5))
    right.legend(loc="lower left")
    draw.save(figure, folder, "purity", f"left: {draw.SPREAD}; right: one point a seed")


def _draw_teacher(table: pd.DataFrame, folder: Path) -> None:
    figure, (axes,) = draw.canvas(1)
    rows = table[(table["setting"] == EXACT) & table["phase"].str.startswith("one sample")]
    rows = rows[rows["seed"] == rows["seed"].min()]
    q = int(rows["q"].iloc[0])
    for index, (phase, part) in enumerate(rows.groupby("phase", sort=False)):
        kappa, held = (text.split()[-1 if i == 0 else 0] for i, text in enumerate(phase.split(", ")[1:]))
        words = f"$\\kappa$ = {kappa}, {held} semantic{'s' * (held != '1')}"
        axes.plot(part["step"], part["weight"], color=draw.COLOURS[index], label=words)
        left = 1 - float(kappa) * int(held)
        if left > 0:
            axes.axhline((1 - 1 / q) / left, color=draw.COLOURS[index], linestyle=":", linewidth=1)
    axes.set(xlabel="step", ylabel="correlation / threshold", yscale="log", xlim=(0, 400))
    axes.set_yticks([1, 2, 5, 10, 100, 1000], ["1", "2", "5", "10", "100", "1000"])
    axes.minorticks_off()
    axes.legend()
    draw.save(
        figure,
        folder,
        "teacher",
        "one noiseless sample, eta = 0.1 (kappa 0.3), 0.02 (1); dotted: fixed points",
    )


def _draw_granularity(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2, height=2.8)
    arms = list(CROSSED.values())
    x = np.arange(len(arms))
    for index, (phase, label) in enumerate(
        (
            ("finetune", "fine-tuned to the 10 classes"),
            ("probe", "frozen, linear head"),
            ("pretrain", "on the pretraining labels"),
        )
    ):
        values = [final(table, arm, "single_accuracy", phase) for arm in arms]
        draw.points(left, x + 0.16 * (index - 1), values, label, index, line=False)
    draw.points(right, x, [final(table, arm, "views_per_class") for arm in arms], "supervised labels", 0, line=False)
    for axes, column in ((left, "single_accuracy"), (right, "views_per_class")):
        masks = final(table, STABLE, column).mean()
        axes.axhline(masks, color="black", linestyle="--", linewidth=1, label="mask reconstruction, fine-tuned")
        axes.set_xticks(x, [AXES[arm] for arm in arms])
        axes.set_xlabel("pretraining labels")
    left.set(ylabel="accuracy on single-view samples", ylim=(0.4, 1.03))
    right.set(ylabel="views per class that work, fine-tuned", ylim=(0.8, 2.07))
    left.legend(loc="lower right", fontsize=6)
    right.legend(loc="lower right", fontsize=6)
    draw.save(figure, folder, "granularity")


def _draw_baselines(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(3, width=6.8)
    rows = table[(table["phase"] == "finetune") & table["event"].str.contains("end")]
    heads = (
        ("sigma_0", "initial scale of the kernels", ((JOINT, FREE), (BLOCK, FIXED))),
        ("m", "kernels per class, from scratch", ((JOINT, FREE),)),
        ("eta_1", "kernels' step size, from scratch", ((JOINT, FREE),)),
    )
    for axes, (key, label, families) in zip(panels, heads, strict=True):
        shown: set[float] = set()
        for index, (default, name) in enumerate(families):
            swept = rows["setting"].str.startswith(name.partition("{")[0] + key + " ") | (rows["setting"] == default)
            found = {value: part["single_accuracy"] for value, part in rows[swept].groupby(key)}
            draw.points(axes, list(found), list(found.values()), default, index)
            shown |= found.keys()
        masked = final(table, STABLE, "single_accuracy")
        if len(masked):
            axes.axhline(masked.mean(), color="black", linestyle="--", linewidth=1, label=STABLE)
        axes.set(xlabel=label, ylim=(0.4, 1.02), xscale="linear" if key == "sigma_0" else "log")
        axes.set_xticks(sorted(shown), [f"{value:g}" for value in sorted(shown)])
        axes.minorticks_off()
    panels[0].set_ylabel("accuracy on single-view samples")
    panels[0].legend()
    draw.save(figure, folder, "baselines")
