"""What probes read from frozen networks, and everything else that was measured, as plain tables."""

import pandas as pd
from matplotlib.lines import Line2D

from granularity.stages.report import drawing
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part
from granularity.stages.report.series import describe

HEADING = "Probes and other measures"
MOST = 400  # most rows of other measures on the page
WORDS = {"error": "Error, top-1 (%)", "macro_f1": "Macro-F1 (%)", "images": "Images", "error_any": "Error, any (%)"}


def build(loaded: Loaded) -> Part | None:
    probe, measures = loaded.probe, loaded.measures
    tables = {name: table for name, table in (("probe", probe), ("measures", measures)) if len(table)}
    if not tables:
        return None
    drawn = {}
    for measure, errors in probe.groupby("measure", sort=False):
        errors = errors[errors["state"].isin(["pretrained", "embedding"])]
        errors = errors[errors["split"] == ("val" if "val" in set(errors["split"]) else errors["split"].min())]
        name = f"probe_{measure}" if drawn else "probe"
        if len(errors):  # the target rank (or else the coarsest), and the finest of the probed ranks
            ranks = [rank for rank in loaded.conditions[0].ranks if rank in set(errors["rank"])]
            first = loaded.conditions[0].target if loaded.conditions[0].target in ranks else ranks[0]
            drawn[name] = draw(errors, list(dict.fromkeys([first, ranks[-1]])), name)
    usual = {"val", "pretrained", "embedding"}
    more = [key for key in ("measure", "split", "state") if set(probe[key]) - usual and probe[key].nunique() > 1]
    columns = [key for key in ("measure", "state", "split") if measures[key].nunique() > 1]
    embedded = bool((probe["state"] == "embedding").any())
    undefined = int(measures["undefined"].sum())
    return Part(
        tables,
        drawn,
        {"more": more, "undefined": undefined, "embedded": embedded, "most": MOST, "words": WORDS, "others": columns},
    )


@drawing.styled()
def draw(table: pd.DataFrame, ranks: list[str], name: str = "probe") -> str:
    """Plot probe errors of one entry of `measures`, state and split: a column per rank, a row per network."""
    tables = dict(tuple(table.groupby("label", sort=False)))
    sizes = [part["space"].nunique() + 1 for part in tables.values()]
    height = 1.0 + 0.4 * len(tables) + 0.24 * sum(sizes)
    options = {"sharex": "col", "sharey": "row", "height_ratios": sizes}
    figure, axes = drawing.panels(len(tables), len(ranks), height, **options)
    for (label, whole), row in zip(tables.items(), axes, strict=True):
        named = whole.drop_duplicates("space")
        place = {space: y for y, space in enumerate(named["space"])}
        for rank, axis in zip(ranks, row, strict=True):
            for result in whole[whole["rank"] == rank].itertuples():
                linear = result.probe == "linear"
                colour, y = describe(result.series).colour, place[result.space] + (-0.16 if linear else 0.16)
                axis.plot([result.min, result.max], [y, y], color=colour, linewidth=1)
                marker, fill = ("o", colour) if linear else ("s", drawing.PAPER)
                axis.plot(result.mean, y, marker, color=colour, mfc=fill, markersize=4.5)
            drawing.rows(axis, [drawing.row_name(arm) for arm in named.itertuples()], 5)
            if label == list(tables)[-1]:
                axis.set_xlabel(f"Error on “{drawing.shorten(rank, 20)}” (%)", parse_math=False)
        row[0].set_title(label)
    dot = {"color": drawing.INK, "markersize": 5, "linestyle": ""}
    legend = {"linear probe": Line2D([], [], marker="o", mfc=drawing.INK, **dot)}
    legend["kNN probe"] = Line2D([], [], marker="s", mfc=drawing.PAPER, **dot)
    return drawing.svg(figure, name, "Errors of linear and kNN probes on the frozen backbones, by label space", legend)
