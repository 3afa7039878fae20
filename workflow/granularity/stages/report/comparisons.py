"""What is compared with what: every arm with the baseline, with labels by chance, and the fine with the coarse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from granularity.claims.statistics import interval, paired
from granularity.stages.report import series
from granularity.stages.report.conditions import BASELINE
from granularity.stages.report.panels import Panel
from granularity.stages.report.statistics import standing

ONE_PASS = "target (one pass)"
# The intervals of a question hold together, over the whole report.
QUESTIONS = {
    "finer": "label spaces with a meaning, against the retraining baseline",
    "chance": "labels by chance, and a single pass, against the retraining baseline",
    "control": "label spaces with a meaning, against labels by chance of the same G",
    "meaning": "the same, averaged over the pairs that hold the target, and over those that do not",
    "finest": "the finest of a family, against its coarsest",
}
# What a label space and its control hold of the target: each of their labels lies in one target class, or not. Where
# only one of the two does, their difference is the target's as well, and is no evidence of meaning.
HOLDS = {
    "both": "both hold the target",
    "neither": "neither holds the target",
    "space": "the control does not hold the target",
    "control": "the control alone holds the target",
}
AVERAGED = ("both", "neither")
SAME = 0.02  # G differs by less: a cluster may come out empty, where an ID that nobody drew keeps its place


def compare(panels: list[Panel]) -> pd.DataFrame:
    """One row per comparison; errors are in percent, differences in percentage points, below zero is better.

    Columns: `question`, a key of `QUESTIONS`; `label`, `network`, `transfer` and `space`, what is compared; `other`,
    what it is compared with (of question `meaning`: `space` is null, and `other` the number of pairs); `holds`, a key
    of `HOLDS` where it is with a control; `repeats`, the label space whose comparison this one is once more, as both
    sides part the images alike (:meth:`.panels.Panel.errors`): it counts in no average and no number of comparisons;
    `difference`, the mean over `pairs` of backbones of one pretraining seed, with its standard `error`; `low`, `high`,
    its interval, corrected for the `comparisons` of its question; `standing`, a key of :data:`.statistics.STANDINGS`.
    """
    columns = ["question", "label", "network", "transfer", "space", "other", "holds", "repeats"]
    columns += ["difference", "error", "pairs"]
    table = pd.DataFrame([row for panel in panels for row in _of_panel(panel)], columns=columns)
    table = table.astype({"difference": float, "error": float})  # where there is no row as well
    counted = table[table["error"].notna() & table["repeats"].isna()].groupby("question").size()
    table["comparisons"] = table["question"].map(counted).fillna(0).astype(int)
    numbers = zip(*(table[key] for key in ("difference", "error", "pairs", "comparisons")), strict=True)
    ends = pd.DataFrame([interval(*row) for row in numbers], columns=["low", "high"], index=table.index, dtype=float)
    table = table.join(ends)
    table["standing"] = [standing(*row) for row in zip(table["low"], table["high"], strict=True)]
    return table


def _of_panel(panel: Panel) -> Iterator[dict[str, Any]]:
    errors = panel.errors()  # a row per network and label space, a column per pretraining seed
    where = {"label": panel.label, "transfer": panel.transfer}
    baseline = errors.loc[(panel.network, BASELINE)] if (panel.network, BASELINE) in errors.index else None
    first: dict[tuple[str, ...], str] = {}  # of what is compared, by how it parts the images

    def row(question: str, network: str, space: str, other: str, one: Any, two: Any, **more: Any) -> dict[str, Any]:
        before = first.setdefault((question, network, panel.alike(space), panel.alike(other)), space)
        named = {"question": question, "network": network, "space": space, "other": other}
        repeats = None if before == space else before
        return {**where, **named, "repeats": repeats, **more, **paired(one, two)._asdict()}

    for network in panel.networks:
        own = errors.loc[network]
        spaces = list(own.index)
        sizes = {space: panel.granularity(space) for space in spaces}
        chance = {space for space in spaces if series.describe(panel.series(space)).meaningless}
        for space in spaces:
            if baseline is not None and (network, space) != (panel.network, BASELINE):
                question = "chance" if space in chance else "finer"
                yield row(question, network, space, BASELINE, own.loc[space], baseline)
        pairs: dict[str, list[tuple[str, str]]] = {}
        for space in (one for one in spaces if one not in {*chance, BASELINE}):
            if control := _control(panel, space, sizes, chance):
                holds = _holds(panel.refines_target(space), panel.refines_target(control))
                against = row("control", network, space, control, own.loc[space], own.loc[control], holds=holds)
                if against["repeats"] is None:
                    pairs.setdefault(holds, []).append((space, control))
                yield against
        for holds in (one for one in AVERAGED if one in pairs):
            averages = [own.loc[list(names)].mean(axis=0, skipna=False) for names in zip(*pairs[holds], strict=True)]
            named = {"question": "meaning", "network": network, "other": str(len(pairs[holds])), "holds": holds}
            yield {**where, **named, **paired(*averages)._asdict()}
        for coarsest, finest in _ends(panel, sizes):
            yield row("finest", network, finest, coarsest, own.loc[finest], own.loc[coarsest])
    if baseline is not None and (one_pass := panel.one_pass()) is not None:
        yield row("chance", panel.network, ONE_PASS, BASELINE, one_pass, baseline)


def _holds(space: bool, control: bool) -> str:
    """A key of `HOLDS`, from whether each of the two refines the target."""
    return {(True, True): "both", (False, False): "neither", (True, False): "space"}.get((space, control), "control")


def _control(panel: Panel, space: str, sizes: dict[str, float | None], chance: set[str]) -> str | None:
    """The labels by chance that a label space is held against: as many, and like it within target classes or not."""
    size = sizes[space]
    if size is None:
        return None
    near = [one for one in sorted(chance) if abs(sizes[one] - size) <= SAME * size]
    unlike = {one: panel.refines_target(one) != panel.refines_target(space) for one in near}
    return min(near, key=lambda one: (unlike[one], abs(sizes[one] - size)), default=None)


def _ends(panel: Panel, sizes: dict[str, float | None]) -> Iterator[tuple[str, str]]:
    """The coarsest and the finest label space of every series, where they differ; human ranks are one series."""
    found: dict[str, list[str]] = {}
    for space, size in sizes.items():
        if space != BASELINE and size is not None:
            found.setdefault(panel.series(space), []).append(space)
    for spaces in found.values():
        coarsest, finest = min(spaces, key=sizes.__getitem__), max(spaces, key=sizes.__getitem__)
        if sizes[coarsest] < sizes[finest]:
            yield coarsest, finest
