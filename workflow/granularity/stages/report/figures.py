"""The figures of the report, each returned as the text of an SVG."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from granularity.stages.report import series
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.drawing import INK, PAPER, RC, panels, shorten, svg

STEPS = [1, 2, 2.5, 5, 10]  # of ticks
DASHES = ["-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (4, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (2, 1))]


@mpl.rc_context(RC)
def granularity_curve(results: pd.DataFrame) -> str:
    """Validation error against the number of pretraining classes, as in the paper's Fig. 3; bars are intervals.

    What was pretrained without labels is a dotted line, its point at the right edge.
    """
    tables = dict(tuple(results.groupby("label", sort=False)))
    figure, axes = panels(len(tables), 1, 0.8 + 2.7 * len(tables))
    legend = {}
    for axis, (label, table) in zip(axes[:, 0], tables.items(), strict=True):
        for baseline in table[table["role"] == "baseline"].itertuples():
            ends = np.nan_to_num([baseline.mean_low, baseline.mean_high], nan=baseline.mean)
            band = axis.axhspan(*ends, color=series.colour("manual"), alpha=0.13, linewidth=0)
            line = axis.axhline(baseline.mean, color=series.colour("manual"), linewidth=1)
            legend["retraining baseline (mean, interval)"] = (band, line)
        for one_pass in table[table["role"] == "one_pass"].itertuples():
            line = axis.axhline(one_pass.mean, color=series.colour("one_pass"), linestyle=(0, (4, 2)), linewidth=1)
            legend["target labels, one pass (mean)"] = line
        arms = table[(table["role"] != "one_pass") & table["granularity"].notna()]
        arms = arms.assign(x=_apart(arms["granularity"].astype(float)))
        for (one, *_), points in arms.groupby(["series", "network"], sort=False):
            legend[_legend(one, points)] = _points(axis, one, points, points["x"], zorder=3)
            at = (points["role"] == "baseline").to_numpy()
            if at.any():
                axis.plot(
                    points["x"][at], points["mean"][at], "o", markersize=9, mfc="none", mec=INK, mew=1.1, zorder=4
                )
                legend["the baseline as a point"] = None  # after all others
        unlabelled = table[(table["role"] == "arm") & table["granularity"].isna()]
        for (one, *_), points in unlabelled.groupby(["series", "network"], sort=False):
            edge = {"transform": axis.get_yaxis_transform(), "clip_on": False, "zorder": 5}
            legend[_legend(one, points)] = _points(axis, one, points, np.ones(len(points)), linestyle="", **edge)
            for mean in points["mean"]:
                axis.axhline(mean, color=series.colour(one), linestyle=(0, (1, 2)), linewidth=1)
        axis.set_title(label)
        axis.set_ylabel("Validation error (%)")
        axis.set_xscale("log")
        axis.margins(x=0.04)
        _log_counts(axis)
        axis.grid(axis="y")
    axes[-1, 0].set_xlabel("Granularity G: classes in pretraining")
    if legend.pop("the baseline as a point", legend) is None:
        ring = Line2D([], [], marker="o", markersize=9, mfc="none", mec=INK, linestyle="")
        legend["the baseline as a point"] = ring
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=2)
    description = "Validation error against the number of classes in pretraining, one line per family of label spaces"
    return svg(figure, "granularity_curve", description)


def _points(axis, one: str, points: pd.DataFrame, x, **style):
    colour, marker = series.style(one)
    size = 10 if marker == "*" else 5
    spread = (points["mean_high"] - points["mean"]).fillna(0)
    style = {"color": colour, "marker": marker, "markersize": size, "elinewidth": 0.9, "capsize": 2} | style
    return axis.errorbar(x, points["mean"], spread, **style)


def _legend(one: str, points: pd.DataFrame) -> str:
    """A series; with its network where that is another than the baseline's."""
    network, baseline = points["network"].iloc[0], points["baseline"].iloc[0]
    return series.words(one) if baseline in (network, None) else f"{series.words(one)} ({shorten(network, 20)})"


@mpl.rc_context(RC)
def agreement(properties: pd.DataFrame, ranks: list[str]) -> str:
    """Normalised mutual information with human ranks against the number of classes, one line per family.

    Args:
        properties: :func:`granularity.stages.report.tables.properties`.
        ranks: the ranks to show, a column of panels for each.
    """
    conditions = list(properties["condition"].unique())
    figure, axes = panels(len(conditions), len(ranks), 1.0 + 2.1 * len(conditions), sharey=True)
    legend = {}
    for row, name in zip(axes, conditions, strict=True):
        table = properties[properties["condition"] == name]
        table = table.assign(x=_apart(table["granularity"]))
        for axis, rank in zip(row, ranks, strict=True):
            for one, points in table.groupby("series", sort=False):
                colour, marker = series.style(one)
                size = 10 if marker == "*" else 5
                (drawn,) = axis.plot(points["x"], points[f"nmi_{rank}"], color=colour, marker=marker, markersize=size)
                legend[series.words(one)] = drawn
            axis.set_title(f"{shorten(rank)}, {table['label'].iloc[0]}")
            axis.set_xscale("log")
            axis.set_ylim(-0.03, 1.03)
            axis.margins(x=0.04)
            _log_counts(axis)
            axis.grid(axis="y")
        row[0].set_ylabel("NMI with the rank")
    for axis in axes[-1]:
        axis.set_xlabel("Granularity G")
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=2)
    description = "Agreement of the label spaces with the human ranks, against the number of classes"
    return svg(figure, "agreement", description)


def _apart(granularity: pd.Series) -> pd.Series:
    """Equal granularities a little apart on a log axis, so that the bars of two families can both be seen."""
    same = granularity.groupby(granularity)
    return granularity * 10 ** (0.018 * (same.cumcount() - (same.transform("size") - 1) / 2))


def _log_counts(axis) -> None:
    low, high = axis.get_xlim()
    subs = (1, 3) if high > 12 * low else (1, 2, 3, 5, 7)
    axis.xaxis.set_major_locator(LogLocator(base=10, subs=subs))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else ""))
    axis.xaxis.set_minor_locator(NullLocator())


@mpl.rc_context(RC)
def differences(compared: pd.DataFrame, name: str, other: str) -> str:
    """Differences of arms from something other, with their intervals; filled where they exclude zero.

    Args:
        compared: rows as :func:`granularity.stages.report.tables.results` has them.
        name: the name of the figure.
        other: what it is the difference from, in words.
    """
    tables = dict(tuple(compared.groupby("label", sort=False)))
    rows = [len(table) for table in tables.values()]
    figure, axes = panels(
        len(tables),
        1,
        1.1 + 0.5 * len(tables) + 0.21 * sum(rows),
        sharex=True,
        height_ratios=[n + 1 for n in rows],
    )
    for axis, (label, table) in zip(axes[:, 0], tables.items(), strict=True):
        axis.axvline(0, color=INK, linewidth=0.9)
        for y, row in enumerate(table.itertuples()):
            colour, marker = series.style(row.series)
            if not np.isnan(row.low):
                axis.plot([row.low, row.high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
            sure = row.standing in ("better", "worse")
            axis.plot(
                row.difference,
                y,
                marker,
                color=colour,
                markersize=9 if marker == "*" else 5.5,
                mfc=colour if sure else PAPER,
                mew=1.2,
            )
        names = [_row_name(row, row.network if row.network != row.baseline else "") for row in table.itertuples()]
        axis.set_yticks(range(len(table)), names, parse_math=False)
        axis.set_ylim(len(table) - 0.4, -0.6)
        axis.tick_params(axis="y", length=0)
        axis.set_title(label, loc="left" if len(label) < 36 else "right")  # a long one reaches over the names
        axis.xaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
        axis.grid(axis="x")
    axes[-1, 0].set_xlabel(f"Difference from {other} (percentage points)", loc="right")
    style = {"color": INK, "marker": "o", "linestyle": "", "markersize": 5.5}
    handles = [Line2D([], [], mfc=INK, **style), Line2D([], [], mfc=PAPER, **style)]
    words = ["interval excludes zero", "can’t be told"]
    figure.legend(handles, words, loc="outside lower center", ncols=2)
    return svg(figure, name, f"Difference of every label space from {other}, with 95 % intervals")


def _row_name(row, network: str = "") -> str:
    granularity = "" if pd.isna(row.granularity) else f" (G = {int(row.granularity):,})"
    return shorten(row.space, 48) + granularity + (f", {shorten(network, 20)}" if network else "")


@mpl.rc_context(RC)
def probe(table: pd.DataFrame, ranks: list[str], name: str = "probe") -> str:
    """Probe errors of frozen networks: a column of panels per rank, a row per condition and network.

    Args:
        table: :func:`granularity.stages.report.tables.probe`, of one entry of `measures`, one state and one split.
        ranks: the ranks to show.
        name: the name of the figure.
    """
    tables = dict(tuple(table.groupby("label", sort=False)))
    spaces = {label: list(dict.fromkeys(part["space"])) for label, part in tables.items()}
    sizes = [len(spaces[label]) + 1 for label in tables]
    figure, axes = panels(
        len(tables),
        len(ranks),
        1.0 + 0.4 * len(tables) + 0.24 * sum(sizes),
        sharex="col",
        sharey="row",
        height_ratios=sizes,
    )
    legend = {}
    for (label, whole), row in zip(tables.items(), axes, strict=True):
        for rank, axis in zip(ranks, row, strict=True):
            part = whole[whole["rank"] == rank]
            for y, space in enumerate(spaces[label]):
                for found in part[part["space"] == space].itertuples():
                    linear = found.probe == "linear"
                    colour, height = series.colour(found.series), y + (-0.16 if linear else 0.16)
                    axis.plot([found.min, found.max], [height, height], color=colour, linewidth=1)
                    fill = colour if linear else PAPER
                    axis.plot(found.mean, height, "o" if linear else "s", color=colour, mfc=fill, markersize=4.5)
            named = whole.drop_duplicates("space")
            axis.set_yticks(range(len(named)), [_row_name(r) for r in named.itertuples()], parse_math=False)
            axis.set_ylim(len(named) - 0.4, -0.6)
            axis.tick_params(axis="y", length=0)
            axis.xaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
            axis.grid(axis="x")
            if label == list(tables)[-1]:
                axis.set_xlabel(f"Error on “{shorten(rank, 20)}” (%)", parse_math=False)
        row[0].set_title(label)
    for words, marker, fill in (("linear probe", "o", INK), ("kNN probe", "s", PAPER)):
        legend[words] = Line2D([], [], color=INK, mfc=fill, marker=marker, markersize=5, linestyle="")
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=2)
    return svg(figure, name, "Errors of linear and kNN probes on the frozen backbones, by label space")


@mpl.rc_context(RC)
def class_sizes(conditions: list[ConditionResults]) -> str:
    """Images in each class, from large to small, for the clustered label spaces; as in the paper's Fig. 5."""
    families = ["kmeans_superclass", "rebalanced", "kmeans"]
    found = {series.series_of(space) for one in conditions for space in one.spaces if space.params.get("clusterings")}
    families = [*(one for one in families if one in found), *series.sort(sorted(found - {*families}))]
    shape = (len(conditions), len(families))
    figure, axes = panels(*shape, 0.6 + 2.0 * shape[0], sharex="col", sharey="row")
    for family, axis in zip(families, axes[0], strict=True):
        axis.set_title(series.words(family), fontsize=8.5)
    for condition, row in zip(conditions, axes, strict=True):
        for family, axis in zip(families, row, strict=True):
            spaces = [space for space in condition.spaces if series.series_of(space) == family]
            for i, space in enumerate(spaces):
                sizes = np.sort(condition.classes[space.name]["size"].to_numpy())[::-1]
                axis.plot(
                    np.arange(1, len(sizes) + 1),
                    sizes,
                    color=series.colour(family),
                    linestyle=DASHES[i % len(DASHES)],
                    marker="." if len(sizes) < 30 else None,
                    markersize=4,
                    label=f"G = {len(sizes):,}",
                )
            axis.set_xscale("log")
            axis.grid()
            if spaces:
                axis.legend(handlelength=2.6)
            else:
                axis.text(0.5, 0.5, "none", ha="center", va="center", transform=axis.transAxes)
        row[0].set_ylim(0, None)
        row[0].yaxis.set_major_locator(MaxNLocator(5, integer=True))
        row[0].set_ylabel(f"Images in the class\n({condition.label})")
    for axis in axes[0]:
        _log_counts(axis)
    figure.supxlabel("Class, from the largest to the smallest", fontsize=8.5)
    return svg(figure, "class_sizes", "Images in each class of the clustered label spaces, sorted by size")


@mpl.rc_context(RC)
def encoder_loss(histories: dict[str, pd.DataFrame]) -> str:
    """Contrastive loss of the encoder against the epoch, training and validation, one panel per condition."""
    cols = min(2, len(histories))
    rows = math.ceil(len(histories) / cols)
    figure, axes = panels(rows, cols, 0.4 + 2.2 * rows, sharey=True)
    for axis in axes.flat[len(histories) :]:
        axis.set_visible(False)
    for axis, (label, history) in zip(axes.flat, histories.items(), strict=False):
        axis.plot(history["epoch"], history["train_loss"], color=series.colour("manual"), label="training")
        axis.plot(
            history["epoch"],
            history["val_loss"],
            color=series.colour("random"),
            linestyle="--",
            label="validation",
        )
        axis.set_title(label)
        axis.set_xlabel("Epoch")
        axis.grid(axis="y")
        axis.legend()
    for axis in axes[:, 0]:
        axis.set_ylabel("Contrastive loss (nats)")
    return svg(figure, "encoder_loss", "Training and validation loss of the contrastive encoder by epoch")
