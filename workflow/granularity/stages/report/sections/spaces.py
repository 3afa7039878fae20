"""The label spaces: the sizes of their classes, and their agreement with the human ranks."""

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from granularity.stages.report import drawing
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part
from granularity.stages.report.series import describe, series_of

HEADING = "The label spaces"
MEASURED = {"purity": "Purity", "mutual_information_bits": "Mutual information (bits)", "nmi": "NMI"}


def build(loaded: Loaded) -> Part | None:
    if loaded.properties.empty:
        return None
    conditions = [condition for condition in loaded.conditions if condition.spaces]
    ranks = list(dict.fromkeys(rank for one in conditions for rank in (one.target, one.ranks[-1])))
    shown = list(dict.fromkeys([conditions[0].target, conditions[0].ranks[-1]]))
    drawn = {"agreement": agreement(loaded.properties, shown)}
    if any(space.params.get("clusterings") for condition in conditions for space in condition.spaces):
        drawn["class_sizes"] = class_sizes(conditions)
    measured = [(f"{key}_{rank}", f"{words}, {rank}") for key, words in MEASURED.items() for rank in ranks]
    return Part({"properties": loaded.properties}, drawn, {"measured": measured})


@drawing.styled()
def agreement(properties: pd.DataFrame, ranks: list[str]) -> str:
    """Plot normalised mutual information with human ranks (a column of panels for each), one line per family."""
    tables = dict(tuple(properties.groupby("label", sort=False)))
    figure, axes = drawing.panels(len(tables), len(ranks), 1.0 + 2.1 * len(tables), sharey=True)
    legend = {}
    for row, (label, table) in zip(axes, tables.items(), strict=True):
        table = table.assign(x=drawing.apart(table["granularity"]))
        for axis, rank in zip(row, ranks, strict=True):
            for name, points in table.groupby("series", sort=False):
                (legend[describe(name).words],) = axis.plot(points["x"], points[f"nmi_{rank}"], **drawing.look(name))
            axis.set_title(f"{drawing.shorten(rank)}, {label}", parse_math=False)
            axis.set_ylim(-0.03, 1.03)
            axis.margins(x=0.04)
            drawing.log_counts(axis)
            axis.grid(axis="y")
        row[0].set_ylabel("NMI with the rank")
    for axis in axes[-1]:
        axis.set_xlabel("Granularity G")
    description = "Agreement of the label spaces with the human ranks, against the number of classes"
    return drawing.svg(figure, "agreement", description, legend)


@drawing.styled()
def class_sizes(conditions: list[ConditionResults]) -> str:
    """Plot images per class, from large to small, a panel per family of clustered label spaces, as in the paper's
    Fig. 5.
    """
    present = {series_of(space) for one in conditions for space in one.spaces if space.params.get("clusterings")}
    first = [one for one in ("kmeans_superclass", "rebalanced", "kmeans") if one in present]
    families = [*first, *sorted(sorted(present - {*first}), key=lambda one: describe(one).place)]
    spaces = [
        (one, family, [space for space in one.spaces if series_of(space) == family])
        for one in conditions
        for family in families
    ]
    shown = [panel for panel in spaces if panel[-1]]
    figure, axes = drawing.two_across(len(shown), 0.3, 2.0)
    for axis, (condition, family, members) in zip(axes, shown, strict=True):
        for i, space in enumerate(members):
            sizes = np.sort(condition.classes[space.name]["size"].to_numpy())[::-1]
            look = {"linestyle": drawing.DASHES[i % len(drawing.DASHES)], "label": f"G = {len(sizes):,}"}
            look |= {"marker": "." if len(sizes) < 30 else None, "markersize": 4}
            axis.plot(np.arange(1, len(sizes) + 1), sizes, color=describe(family).colour, **look)
        axis.grid()
        axis.legend(handlelength=2.6)
        axis.set_ylim(0, None)
        axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_title(f"{describe(family).words},\n{condition.label}", fontsize=8.5)
        drawing.log_counts(axis)
    figure.supxlabel("Class, from the largest to the smallest", fontsize=8.5)
    figure.supylabel("Images in the class", fontsize=8.5)
    return drawing.svg(figure, "class_sizes", "Images in each class of the clustered label spaces, sorted by size")
