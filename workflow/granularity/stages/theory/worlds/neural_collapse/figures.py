"""World 2's figures, drawn from the run table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from granularity.stages.theory import figures as draw
from granularity.stages.theory.worlds.neural_collapse.claims import (
    Cells,
    by_clock,
    cells,
    ends,
    family,
    mean_field,
    separations,
    similarity,
    theorem,
    values_of,
    variances,
)

MEDIAN = "medians over seeds; bands and bars from the 25th to the 75th percentile"


@draw.style()
def figures(table: pd.DataFrame, folder: Path) -> None:
    """The sweeps (Figures 15 to 17), scaling, similarity (Figure 18), dynamics, theorem, granularity."""
    _draw_sweeps(table, folder)
    _draw_scaling(table, folder)
    _draw_similarity(table, folder)
    _draw_dynamics(table, folder)
    _draw_clock(table, folder)
    _draw_separation(table, folder)
    _draw_granularity(table, folder)


def _first_step(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["model"] == "mixture") & (table["step"] == 0)]


def _draw_sweeps(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(3, width=6.8, height=2.9)
    heads = (("d_in", "input dimension"), ("hidden", "hidden width"), ("decay", "weight decay"))
    for axes, (key, title) in zip(panels, heads, strict=True):
        rows = family(ends(table), key)
        found, accuracy = _common(cells(rows, key)), cells(rows, key, "accuracy")
        curves = [v for v in values_of(found) if len(variances(found, v)) > 3]
        for index, value in enumerate(curves):
            at = variances(found, value)
            spread = [s * 1.06 ** (index - (len(curves) - 1) / 2) for s in at]  # bars side by side
            draw.points(axes, spread, [found[value, s] for s in at], f"{value:g}", index)
            low = [i for i, s in enumerate(at) if (accuracy[value, s] < 1).any()]
            mean = [found[value, at[i]].mean() for i in low]
            axes.plot([spread[i] for i in low], mean, "o", mfc="none", mec="red", ms=8, zorder=5)
        at = sorted(set(rows["sigma2"]))
        axes.plot(at, [1 + s for s in at], "--", color="black", linewidth=1, label=r"inputs, $1 + \sigma^2$")
        axes.set(title=title, xscale="log", yscale="log", xlabel=r"variance of cluster means, $\sigma^2$")
        _plain(axes, at, (1, 2, 5, 10, 20))
        axes.legend(loc="upper left")
    panels[0].set_ylabel("MSDR at the end")
    draw.save(figure, folder, "sweeps", f"{draw.SPREAD}; red rings: some training accuracy under 100 %")


def _common(found: Cells) -> Cells:
    """The seeds that all cells have, so that their means compare."""
    seeds = min(map(len, found.values()), default=0)
    return {cell: values[:seeds] for cell, values in found.items()}


def _plain(axes: Axes, x: Sequence[float], y: Sequence[float] = ()) -> None:
    axes.set_xticks(list(x), [f"{v:g}" for v in x])
    axes.xaxis.minorticks_off()
    if len(y):
        low, high = axes.get_ylim()
        shown = [v for v in y if low <= v <= high]
        axes.set_yticks(shown, [f"{v:g}" for v in shown])
        axes.yaxis.minorticks_off()


def _by_value(axes: Axes, found: Cells, wanted: Sequence[float]) -> list[float]:
    xs: set[float] = set()
    for index, s in enumerate(wanted):
        values = [v for v in values_of(found) if (v, s) in found]
        if values:
            draw.points(axes, values, [found[v, s] for v in values], rf"$\sigma^2$ = {s:g}", index)
        xs |= set(values)
    axes.set(xscale="log", yscale="log")
    return sorted(xs)


def _draw_scaling(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(3, width=6.8, height=2.7)
    rows = ends(table)
    heads = (
        ("hidden", family(rows, "hidden"), "standard scaling", "hidden width"),
        ("hidden", mean_field(rows), "mean-field scaling", "hidden width"),
        ("lr", family(rows, "lr"), "standard scaling", "step size"),
    )
    for axes, (key, part, title, label) in zip(panels, heads, strict=True):
        xs = _by_value(axes, _common(cells(part, key)), (1, 2, 4, 8))
        axes.set(title=title, xlabel=label)
        _plain(axes, xs, (1, 2, 5, 10, 20, 50, 100))
    panels[0].set_ylabel("MSDR at the end")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    draw.save(figure, folder, "width_and_step_size")


def _draw_similarity(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(2)
    heads = ((4, "coarse labels: pairs merged"), (8, "natural labels: pairs told apart"))
    for axes, (labels, title) in zip(panels, heads, strict=True):
        for index, group in enumerate(("similar", "dissimilar")):
            end = similarity(table, f"msdr_{group}", labels)
            start = similarity(table, f"input_msdr_{group}", labels)
            if not end:
                continue
            draw.points(axes, list(end), list(end.values()), f"{group} pairs", index)
            mean = [part.mean() for part in start.values()]
            colour = draw.COLOURS[index]
            axes.plot(list(start), mean, ":", color=colour, label=f"{group} pairs, inputs")
            axes.set(xscale="log", yscale="log")
            _plain(axes, list(end))
        axes.set(title=title, xlabel=r"variance within similar pairs, $\tau^2$")
    limits = [axes.get_ylim() for axes in panels]
    for axes in panels:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        axes.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        axes.yaxis.minorticks_off()
    panels[0].set_ylabel("MSDR at the end")
    panels[0].legend(loc="upper left")
    draw.save(figure, folder, "similarity")


def _draw_dynamics(table: pd.DataFrame, folder: Path) -> None:
    figure, panels = draw.canvas(3, width=6.8)
    rows = family(table[(table["model"] == "mixture")], "sigma2")
    at = [s for s in (0.5, 2.0, 8.0) if (rows["sigma2"] == s).any()]
    heads = (
        ("msdr", "distance of merged clusters /\nwithin a cluster (MSDR)", "log"),
        ("r2", "distance of merged clusters /\nof clusters of other labels", "linear"),
        ("nc1", "spread within labels, NC1", "log"),
    )
    for axes, (measure, label, scale) in zip(panels, heads, strict=True):
        for index, s in enumerate(at):
            part = rows[rows["sigma2"] == s]
            draw.curve(axes, part, "step", measure, rf"$\sigma^2$ = {s:g}", index)
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1000"])
        axes.xaxis.minorticks_off()
        axes.set(xlabel="gradient step", ylabel=label, yscale=scale)
    panels[0].set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    panels[0].yaxis.minorticks_off()
    panels[1].set_ylim(0, 1.05)
    panels[2].set_yticks([0.02, 0.05, 0.1, 0.2, 0.5], ["0.02", "0.05", "0.1", "0.2", "0.5"])
    panels[2].yaxis.minorticks_off()
    panels[1].legend(loc="lower left")
    draw.save(figure, folder, "dynamics", f"coarse labels; {draw.SPREAD}")


def _median(axes: Axes, x: Sequence[float], values: Sequence[np.ndarray], label: str, index: int, bars: bool):
    low, middle, high = np.array([np.percentile(v, [25, 50, 75]) for v in values]).T
    colour = draw.COLOURS[index % len(draw.COLOURS)]
    if bars:
        error = [middle - low, high - middle]
        marker = "-" + draw.MARKERS[index % len(draw.MARKERS)]
        axes.errorbar(x, middle, yerr=error, fmt=marker, color=colour, capsize=2, elinewidth=1, label=label)
    else:
        axes.plot(x, middle, color=colour, label=label)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


def _draw_clock(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, right) = draw.canvas(2, height=2.9)
    rows = theorem(table)
    for index, (d, part) in enumerate(rows.groupby("dimension")):
        for axes, measure in ((left, "ratio"), (right, "worst_ratio")):
            grouped = part.groupby("clock")[measure]
            values = [group.to_numpy(float) for _, group in grouped]
            _median(axes, list(grouped.groups), values, f"d = {_power(d)}", index, bars=False)
        inputs = part["input_ratio"].median()
        left.plot([0], [inputs], marker="<", color=draw.COLOURS[index], ms=5, clip_on=False, linestyle="")
    right.axhline(1, color="black", linewidth=1, linestyle="--")
    left.set(ylabel="distance, mean between clusters /\nmean within a cluster")
    right.set(ylabel="distance, least between clusters /\nlargest within a cluster")
    for axes in (left, right):
        axes.set(xlabel=r"clock $s = \eta \tau^3 \omega t / 8$", xlim=(0, None))
    left.legend(loc="upper left")
    draw.save(figure, folder, "theorem", MEDIAN + "; triangles: the inputs")


def _power(d: float) -> str:
    exponent = round(np.log10(d))
    return f"$10^{{{exponent}}}$" if np.isclose(d, 10.0**exponent) else f"{d:g}"


def _draw_separation(table: pd.DataFrame, folder: Path) -> None:
    figure, (axes,) = draw.canvas(1, height=2.9)
    rows = separations(table)
    shown = ((0, "step 0"), (2, "s = 2"), (5, "s = 5"), (20, "s = 20"))
    for index, (s, label) in enumerate(shown):
        found = by_clock(rows, "separation", "ratio", s)
        if found:
            _median(axes, list(found), list(found.values()), label, index, bars=True)
    inputs = by_clock(rows, "separation", "input_ratio", 0)
    middle = [np.median(part) for part in inputs.values()]
    axes.plot(list(inputs), middle, "--", color="black", linewidth=1, label="inputs")
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel=r"norm of means / of noise, $\tau / \sqrt{d}$")
    axes.set(ylabel="distance, mean between clusters /\nmean within a cluster")
    _plain(axes, list(inputs), (1, 3, 10, 30, 100, 300))
    axes.legend(loc="upper left")
    draw.save(figure, folder, "separation", MEDIAN.replace("bands and bars", "bars"))


def _draw_granularity(table: pd.DataFrame, folder: Path) -> None:
    figure, (left, middle, right) = draw.canvas(3, width=6.8, height=2.7)
    rows = family(ends(table), "labels")
    start = cells(family(_first_step(table), "sigma2"), "labels")
    found = cells(rows, "labels")
    at = [s for s in (0.1, 0.5, 2.0, 8.0) if any(v == s for _, v in found)]
    xs = [2, 4, 8, 16]
    for index, s in enumerate(at):
        have = [g for g in xs if (g, s) in found]
        if not have or (4, s) not in start:
            continue
        grown = [found[g, s] / start[4, s][: len(found[g, s])] for g in have]
        draw.points(left, have, grown, rf"$\sigma^2$ = {s:g}", index)
    left.axhline(1, color="black", linestyle="--", linewidth=1)
    left.set(xscale="log", ylabel="MSDR at the end / at step 0")
    left.legend(loc="upper left")
    natural = cells(rows, "labels", "natural_accuracy")
    s = min(at, default=0.1)
    have = [g for g in xs if (g, s) in natural]
    draw.points(middle, have, [natural[g, s] for g in have], "after training", 0)
    first = family(_first_step(table), "sigma2")
    for prefix, label, dash in (("", "step 0", ":"), ("input_", "inputs", "--")):
        value = cells(first, "labels", prefix + "natural_accuracy").get((4, s))
        if value is not None:
            middle.axhline(value.mean(), color="black", linestyle=dash, linewidth=1, label=label)
    middle.set(xscale="log", ylabel=f"held-out accuracy on\nnatural classes, $\\sigma^2$ = {s:g}")
    middle.set_ylim(bottom=middle.get_ylim()[0] - 0.12)
    middle.legend(loc="lower right")
    for axes in (left, middle):
        axes.set_xlabel("given labels (natural: 8)")
        _plain(axes, xs)
    for index, (labels, word) in enumerate(((4, "coarse, merged"), (8, "natural, told apart"))):
        end = similarity(table, "msdr_similar", labels)
        draw.points(right, list(end), list(end.values()), word, index)
    inputs = similarity(table, "input_msdr_similar", 4)
    mean = [v.mean() for v in inputs.values()]
    right.plot(list(inputs), mean, "--", color="black", linewidth=1, label="inputs")
    right.set(xscale="log", yscale="log", xlabel=r"variance within similar pairs, $\tau^2$")
    right.set(ylabel="MSDR of similar pairs")
    _plain(right, list(inputs), (1, 2, 5, 10, 20))
    right.legend(title="labels", title_fontsize=7)
    draw.save(figure, folder, "granularity")
