"""The plots as Bokeh documents; names and labels are in them as data only, which the pages show as text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bokeh
import pandas as pd
from bokeh.embed import json_item
from bokeh.models import BasicTickFormatter, BoxSelectTool, ColumnDataSource, HoverTool, LassoSelectTool
from bokeh.plotting import figure

from granularity.stages.report.drawing import spread
from granularity.stages.report.series import describe, series_of

SCRIPT = Path(bokeh.__file__).parent / "server/static/js/bokeh.min.js"
GREY = "#808791"  # visible on light and dark paper


def scatter(number: int) -> dict[str, Any]:
    """Return the map of `number` images; the page replaces the two placeholder points by places and colours."""
    source = ColumnDataSource({"x": [0, 1], "y": [0, 1], "colour": [GREY, GREY], "alpha": [0, 0]}, name="shown")
    plot = _plot(460, tools="pan,wheel_zoom,reset")
    lasso = LassoSelectTool(continuous=False)
    plot.add_tools(lasso, BoxSelectTool(continuous=False), HoverTool(tooltips=None))
    plot.toolbar.active_drag = lasso
    plot.axis.visible, plot.grid.visible = False, False
    size = 8 if number < 2000 else 5 if number < 20_000 else 3
    style = {"size": size, "color": "colour", "fill_alpha": "alpha", "line_color": None}
    plot.scatter("x", "y", source=source, nonselection_fill_alpha=0.08, **style)
    return json_item(plot)


def curves(runs: pd.DataFrame, history: pd.DataFrame, loss: str) -> dict[str, Any]:
    """Plot the loss of each run by epoch. `runs`: as in `runs.parquet`, with `colour` and `words`."""
    lines = history.dropna(subset=loss).sort_values("epoch").groupby("run_id")
    xs, ys = lines["epoch"].agg(list), lines[loss].agg(list)
    runs = runs[runs["run_id"].isin(xs.index)]
    data = {"xs": xs[runs["run_id"]].tolist(), "ys": ys[runs["run_id"]].tolist(), **_about(runs)}
    plot = _plot(340, x_axis_label="Epoch", y_axis_label=loss.replace("_", " "))
    source = ColumnDataSource(data, name="shown")
    plot.multi_line("xs", "ys", source=source, line_color="colour", line_width=2, line_alpha="alpha")
    plot.add_tools(HoverTool(tooltips=None, line_policy="nearest"))
    return json_item(plot)


def dots(runs: pd.DataFrame) -> dict[str, Any]:
    """Plot the validation error of each run against G, one dot per run."""
    runs = runs.dropna(subset=["granularity", "val_error"])
    data = {"x": runs["granularity"].astype(float), "y": runs["val_error"].astype(float), **_about(runs)}
    plot = _plot(340, x_axis_type="log", x_axis_label="G (classes pretrained on)", y_axis_label="Validation error (%)")
    plot.xaxis.formatter = BasicTickFormatter(use_scientific=False)
    plot.xaxis.ticker = spread(data["x"], data["x"].min(), data["x"].max())
    shown = {"size": 8, "color": "colour", "fill_alpha": "alpha", "line_color": None}
    plot.scatter("x", "y", source=ColumnDataSource(data, name="shown"), **shown)
    plot.add_tools(HoverTool(tooltips=None))
    return json_item(plot)


def styled(runs: pd.DataFrame, spaces: Mapping[str, Any]) -> pd.DataFrame:
    """Add the report's `colour` and `words` of each run's series to tables of runs; `spaces`: by name."""
    of = {name: describe(series_of(spaces[name]) if name in spaces else name) for name in runs["space"].unique()}
    if "target" in of:  # a series of human labels, but shown apart from the others
        of["target"] = of["target"]._replace(words="target (baseline)", style=(GREY, "o"))
    said = runs["space"].map(of)
    return runs.assign(colour=said.map(lambda one: one.style[0]), words=said.map(lambda one: one.words))


def _about(runs: pd.DataFrame) -> dict[str, Sequence]:
    columns = {"run": runs["run_id"], "space": runs["space"], "colour": runs["colour"]}
    return {name: column.astype(str).tolist() for name, column in columns.items()} | {"alpha": [0.85] * len(runs)}


def _plot(height: int, tools: str = "pan,box_zoom,wheel_zoom,reset", **options: Any) -> figure:
    plot = figure(height=height, sizing_mode="stretch_width", tools=tools, toolbar_location="above", **options)
    plot.toolbar.logo = None
    plot.background_fill_color = plot.border_fill_color = plot.outline_line_color = None
    plot.axis.axis_label_text_color = plot.axis.major_label_text_color = GREY
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = plot.axis.minor_tick_line_color = GREY
    plot.grid.grid_line_color, plot.grid.grid_line_alpha = GREY, 0.2
    return plot
