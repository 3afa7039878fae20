"""The study: one table of all its numbers, comparisons over its draws, and a page."""

import os
from pathlib import Path

import pandas as pd

from granularity.stages.gather import predictions, tables
from granularity.stages.report import drawing
from granularity.stages.report.comparisons import QUESTIONS
from granularity.stages.report.pages import environment
from granularity.stages.report.sections import claims
from granularity.store.artifact import Artifact
from granularity.store.task import Task

ROW, TOP = 0.24, 0.9  # inches of a figure: per comparison, and for the rest
MOST = 60  # most comparisons in a figure
COMPARED = "tables/comparisons.parquet", "tables/results.parquet"
LONGEST = 76  # characters of a comparison's name


def run(task: Task) -> None:
    """Write the tables and the page of a study.

    `runs.parquet` and `.csv`, a row per number of a training or a measure: the axes, `draw`, and the columns of
    :func:`granularity.runs`. `comparisons.parquet` and `.csv`: see :func:`.tables.over_draws`. `predictions.csv`, if
    there are any: see :func:`.predictions.judged`. `study.html`.
    """
    cells, inputs, reports, arms, judged_claims = task.options.cells, {}, {}, {}, []
    found: dict[str, list[tuple[str, Artifact]]] = {cell: [] for cell in cells}
    for role in task.inputs:
        for one in task.open_all(role):
            name = os.path.relpath(one.place, os.path.abspath(task.output.parent))
            cell, condition = Path(name).parts[:2]
            inputs[name] = one
            if role == "verdicts":
                judged_claims.append(claims.study(one))
            elif role == "report":
                if COMPARED[0] in one.manifest["files"]:  # not where nothing is finetuned
                    reports[cell], arms[cell] = map(one.table, COMPARED)
            else:
                found[cell].append((condition, one))
    trained = [one for of in found.values() for _, one in of if one.kind == "pretrain"]
    runs = {cell: tables.runs(of) for cell, of in found.items()}
    every = pd.concat(runs.values(), ignore_index=True)
    every = tables.with_axes(every, [cell for cell, table in runs.items() for _ in range(len(table))], cells)
    compared = tables.over_draws(reports, cells, task.options.unit)
    questions = {key: words for key, words in QUESTIONS.items() if (compared["question"] == key).any()}
    axes = [name for name in next(iter(cells.values())) if name != "draw"]
    told = compared.assign(space=compared["space"].fillna("meaning"))
    if compared["network"].nunique() > 1:
        told["space"] += " (" + compared["network"] + ")"
    shown = {key: told[told["question"] == key] for key in questions}
    rows = {key: table.to_dict("records") for key, table in shown.items()}
    figures = {key: figure(shown[key], axes, words) for key, words in questions.items()}
    said = None if task.options.predictions is None else predictions.read(task.options.predictions)
    judged = None if said is None else predictions.judged(said, every, task.options.networks)
    template = environment(Path(__file__).parent).get_template("study.html.j2")
    html = template.render(
        options=task.options,
        name=task.output.parent.name,
        axes=axes,
        questions=questions,
        rows=rows,
        figures=figures,
        studies=judged_claims,
        found=tables.answers(told, compared["space"], arms, cells),
        declared="primary" in questions,
        finetuned=bool(reports),
        said=said,
        judged=[] if judged is None else judged.to_dict("records"),
    )
    with task.create(inputs, task.options.model_dump(mode="json")) as out:
        for name, table in (("runs", every), ("comparisons", compared)):
            out.table(f"{name}.parquet", table)
            out.text(f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))
        if judged is not None:
            out.text("predictions.csv", judged.to_csv(index=False, float_format="%.6g"))
            out.summary |= {"predictions": len(judged), "inside": int(judged["inside"].sum())}
        out.summary |= {"cells": len(cells), "first_training": min(one.manifest["cost"]["started"] for one in trained)}
        out.text("study.html", html)


@drawing.styled()
def figure(compared: pd.DataFrame, axes: list[str], words: str) -> str | None:
    """Draw each comparison's difference with its interval, as SVG; None if none has an interval, or too many do."""
    compared = compared.dropna(subset="low")
    if compared.empty or len(compared) > MOST:
        return None
    made, axis = drawing.panels(1, 1, TOP + ROW * len(compared))
    axis, places = axis[0, 0], range(len(compared))
    reach = [compared["difference"] - compared["low"], compared["high"] - compared["difference"]]
    axis.axvline(0, color=drawing.INK, linewidth=0.8)
    axis.errorbar(compared["difference"], places, xerr=reach, fmt="o", markersize=4, color=drawing.INK)
    rows = compared.to_dict("records")
    same = set.intersection(*(set(row["label"].split(", ")) for row in rows))
    axis.set_yticks(places, [drawing.shorten(named(row, axes, same), LONGEST) for row in rows])
    axis.set_ylim(len(compared) - 0.5, -0.5)
    axis.set_xlabel("points (below zero: better)")
    return drawing.svg(made, f"study-{compared['question'].iloc[0]}", words)


def named(row: dict, axes: list[str], same: set[str]) -> str:
    """Return what a row compares, with its values of the axes, and its label without the words that are the `same`."""
    against = f" ({row['holds']})" if row["question"] == "meaning" else f" − {row['other']}"
    label = [word for word in row["label"].split(", ") if word not in same]
    return ", ".join([row["space"] + against, *(f"{name.rpartition('.')[2]} {row[name]}" for name in axes), *label])
