"""Measured networks over their training, and the grid in which pictures of measures show them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from granularity.stages.report import drawing
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.loaded import in_order
from granularity.store.artifact import Artifact

MOST = 5  # states of a training, and columns of a picture
LEFT, RIGHT, GAP = 1.05, 0.4, 0.08  # inches
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#6b7785",
)  # Okabe and Ito; the last: others


class Snapshot(NamedTuple):
    """One network, measured at one time. `words`: its label space, and its network if there are several; `state` as in
    :class:`ConditionResults`; `ranks`: human ranks that the measure read; `values` and files of arrays by SPLIT/KEY.
    """

    condition: ConditionResults
    words: str
    state: str
    ranks: list[str]
    values: Mapping[str, float]
    files: Mapping[str, str]
    artifact: Artifact

    def array(self, key: str) -> np.ndarray:
        return self.artifact.array(self.files[key])


def trainings(condition: ConditionResults, entry: str, most: int) -> list[list[Snapshot]]:
    """Return the first `most` networks for which an entry of `measures` made arrays, in the page's order, one (of the
    smallest seed) per label space and network, in up to `MOST` states from untrained to finetuned, evenly chosen.
    """
    values = condition.values[condition.values["measure"] == entry].fillna({"network": ""})
    values = values.assign(late=values["transfer"].notna()).sort_values(["late", "epoch", "pretrain_seed"])
    names = [*(space.name for space in in_order(condition)), *values["space"]], ["", *condition.models]
    groups, chosen = dict(iter(values.groupby(["space", "network"]))), []
    for key in sorted(groups, key=lambda key: [names[0].index(key[0]), names[1].index(key[1])]):
        states = [_snapshot(condition, rows) for _, rows in groups[key].groupby("state", sort=False)]
        states = [one for one in states if one.files]
        chosen += [[states[i] for i in evenly(len(states))]] if states else []
    return chosen[:most]


def _snapshot(condition: ConditionResults, rows: pd.DataFrame) -> Snapshot:
    first = rows.iloc[0]
    rows = rows[(rows["run"] == first["run"]) & (rows["artifact"] == first["artifact"])]
    artifact = condition.artifacts[first["artifact"]]
    network = "embedding" if pd.isna(first["epoch"]) else f"-{first['run']}@{first['epoch']:.0f}"
    parts = {file: file.split("/", 2) for file in artifact.manifest["files"] if file.startswith("arrays/")}
    files = {key.removesuffix(".npy"): file for file, (_, name, key) in parts.items() if name.endswith(network)}
    words = first["space"] + (f", {first['network']}" if len(condition.models) > 1 and first["network"] else "")
    values = dict(zip(rows["split"].astype("str") + "/" + rows["key"].astype("str"), rows["value"], strict=True))
    ranks = artifact.manifest["options"]["ranks"] or condition.ranks
    return Snapshot(condition, words, first["state"], ranks, values, files, artifact)


def evenly(count: int) -> list[int]:
    """Return up to `MOST` of `count` indices, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(int)).tolist()


def grid(trainings: list, messages: list[str], labels: list, across: int, size: tuple, above: float, below: float):
    """Return a figure of a block per label space, under its message, and the axes of each, [lines, across], without
    ticks. `labels` of each block's lines stand at their left. In inches: the `size` of axes, and the space `above` a
    block and `below` a line. (The last bits of matplotlib's constrained layout, and so its SVG, differ between calls.)
    """
    (wide, high), blocks = size, []
    top = total = sum(0.3 + above + len(lines) * (high + below) for lines in labels)
    figure = Figure(figsize=(drawing.WIDTH, total), dpi=200)  # of what is drawn as pixels
    for (first, *_), message, lines in zip(trainings, messages, labels, strict=True):
        words = drawing.shorten(first.words, 72 - len(message)) + (f": {message}" if message else "")
        figure.text(0.01, (top - 0.2) / total, words, fontsize=9, fontweight="bold", parse_math=False)
        top -= 0.3 + above
        blocks.append(np.empty((len(lines), across), dtype=object))
        for line, column in np.ndindex(blocks[-1].shape):
            left, bottom = LEFT + column * (wide + GAP), top - line * (high + below) - high
            box = (left / drawing.WIDTH, bottom / total, wide / drawing.WIDTH, high / total)
            blocks[-1][line, column] = axis = figure.add_axes(box, xticks=[], yticks=[])
            axis.spines[:].set(visible=True, alpha=0.3)
            beside = {"rotation": 0, "ha": "right", "va": "center", "fontsize": 7.5, "parse_math": False}
            axis.set_ylabel("" if column else lines[line], **beside)
        top -= len(lines) * (high + below)
    return figure, blocks


def square(across: int, largest: float) -> tuple[float, float]:
    """Return the size of the axes of `across` columns, at most `largest` inches."""
    return (min(largest, (drawing.WIDTH - LEFT - RIGHT) / across - GAP),) * 2


def moves(snapshots: Sequence[Snapshot], key: str, form: str = ".2f") -> str:
    """Say a number's first and last value, such as `goes from 1.02 to 1.23`, and the last of `KEY_null`, if any."""
    first, last = (format(snapshots[place].values[key], form).replace("-", "−") for place in (0, -1))
    null = snapshots[-1].values.get(f"{key}_null")
    words = f"is {last}" if first == last else f"goes from {first} to {last}"
    return words if null is None else f"{words} (shuffled labels: {null:{form}})"
