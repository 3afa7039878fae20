"""The comparisons behind the answer, and the error against the number of classes in pretraining."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from granularity.stages.report import drawing
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part
from granularity.stages.report.series import describe

HEADING = "The granularity curve"


def build(loaded: Loaded) -> Part | None:
    results, headline = loaded.results, loaded.headline
    if results.empty or results["granularity"].isna().all():
        return None
    told = len(headline["shown"]) > 0 and (headline["few"] is None or "primary" in headline)
    drawn = {"answer": answer(headline["shown"], results)} if told else {}
    drawn["granularity_curve"] = draw(results)
    return Part(figures=drawn, values={"unlabelled": bool(results["granularity"].isna().any())})


def answer(shown: pd.DataFrame, results: pd.DataFrame) -> str:
    """Draw the comparisons behind the answer: what is compared with what, and the interval of their difference."""
    keys = ["label", "network", "space"]
    rows = shown.merge(results[[*keys, "series", "baseline"]], on=keys, how="left")
    rows["space"] += " − " + rows["other"]
    return drawing.differences(rows.assign(granularity=np.nan), "answer")


@drawing.styled()
def draw(results: pd.DataFrame) -> str:
    """Plot validation error against the number of pretraining classes, as in the paper's Fig. 3; bars are intervals,
    clipped to possible errors.

    Networks pretrained without labels are a dotted line, with a point at the right edge.
    """
    tables = dict(tuple(results.groupby("label", sort=False)))
    figure, axes = drawing.panels(len(tables), 1, 0.8 + 2.7 * len(tables))
    legend = {}
    for axis, (label, table) in zip(axes[:, 0], tables.items(), strict=True):
        for row in table[table["role"] == "baseline"].itertuples():
            ends = np.nan_to_num([row.mean_low, row.mean_high], nan=row.mean).clip(0, 100)
            band = axis.axhspan(*ends, color=describe("manual").colour, alpha=0.13, linewidth=0)
            line = axis.axhline(row.mean, color=describe("manual").colour, linewidth=1)
            legend["baseline: target, twice (mean, interval)"] = (band, line)
        for row in table[table["role"] == "one_pass"].itertuples():
            line = axis.axhline(row.mean, color=describe("one_pass").colour, linestyle=(0, (4, 2)), linewidth=1)
            legend["target labels, one pass (mean)"] = line
        arms = table[(table["role"] != "one_pass") & table["granularity"].notna()]
        arms = arms.assign(x=drawing.apart(arms["granularity"].astype(float)))
        for (series, *_), points in arms.groupby(["series", "network"], sort=False):
            legend[_legend(series, points)] = _points(
                axis, series, points, points["x"], **_own(points, table), zorder=3
            )
        ring = {"marker": "o", "markersize": 9, "mfc": "none", "mec": drawing.INK, "mew": 1.1, "linestyle": ""}
        axis.plot("x", "mean", data=arms[arms["role"] == "baseline"], zorder=4, **ring)
        unlabelled = table[(table["role"] == "arm") & table["granularity"].isna()]
        for (series, *_), points in unlabelled.groupby(["series", "network"], sort=False):
            edge = {**_own(points, table), "transform": axis.get_yaxis_transform(), "zorder": 5, "linestyle": ""}
            legend[_legend(series, points)] = _points(axis, series, points, np.ones(len(points)), **edge)
            for mean in points["mean"]:
                axis.axhline(mean, color=describe(series).colour, linestyle=(0, (1, 2)), linewidth=1)
        axis.set(title=label, ylabel="Validation error (%)")
        axis.margins(x=0.04)
        low, high = axis.get_ylim()
        axis.set_ylim(max(0, low), min(100, max(high, low + 1)))
        drawing.log_counts(axis, arms["granularity"].astype(float))
        axis.grid(axis="y")
    axes[-1, 0].set_xlabel("Granularity G: classes in pretraining")
    if (results["role"] == "baseline").any():
        legend["the baseline, at its G"] = Line2D([], [], **ring)
    description = "Validation error against the number of classes in pretraining, one line per family of label spaces"
    return drawing.svg(figure, "granularity_curve", description, legend)


def _points(axis, one: str, points: pd.DataFrame, x, **style):
    ends = (points["mean"] - points["mean_low"].clip(0), points["mean_high"].clip(upper=100) - points["mean"])
    style = drawing.look(one) | {"elinewidth": 0.9, "capsize": 2, "clip_on": False} | style
    return axis.errorbar(x, points["mean"], [end.fillna(0) for end in ends], **style)


def _own(points: pd.DataFrame, table: pd.DataFrame) -> dict[str, Any]:
    """Return the style of a network that has another's baseline: hollow markers, and a dash of its own."""
    baseline, network = points["baseline"].iloc[0], points["network"].iloc[0]
    networks = [baseline, *(one for one in table["network"].unique() if one != baseline)] if baseline else [network]
    number = networks.index(network)
    return {"mfc": drawing.PAPER, "linestyle": drawing.DASHES[number % len(drawing.DASHES)]} if number else {}


def _legend(one: str, points: pd.DataFrame) -> str:
    """Return a series in words, with its network unless that is the baseline's."""
    network, baseline = points["network"].iloc[0], points["baseline"].iloc[0]
    same = baseline in (network, None)
    return describe(one).words + ("" if same else f" ({drawing.shorten(network, 20)})")
