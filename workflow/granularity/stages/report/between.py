"""Whether what a label space gains differs between training-set sizes, or between transfers.

A gain is the difference from the baseline (below zero is better), by backbone. Two gains of a label space are compared
over backbones of one pretraining seed: of two transfers these are the same backbones, of two training-set sizes the
seeds alone are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from granularity.claims.statistics import LEVEL, holm, interval, p_value, paired
from granularity.stages.report import series
from granularity.stages.report.conditions import BASELINE
from granularity.stages.report.panels import Panel
from granularity.stages.report.statistics import pairs_needed

STANDINGS = {"better": "gains more", "worse": "gains less", "open": "can’t be told", "untested": "can’t be told"}


def between(panels: list[Panel]) -> pd.DataFrame:
    """One row per label space with a meaning, finer than the target, and two of what it was run with.

    Each training-set size is held against the smallest, each transfer against the first.

    Columns: `question`, `sizes` or `transfers`; `network`, `space`; `label`, `gain` and `other`, `other_gain`, the two;
    `difference` of the gains (percentage points, below zero: more is gained at `label`), with its standard `error` over
    `pairs` of backbones; `low`, `high`, its interval, which holds together with those of all `comparisons` of the
    question (Bonferroni), and `p`, Holm's over them; `standing`, a key of `STANDINGS`, by `p`; `needed`, how many
    backbones would tell such a difference apart if it and its spread stayed, null where it is told, or has no spread.
    """
    columns = ["question", "network", "space", "label", "gain", "other", "other_gain", "difference", "error", "pairs"]
    gains = [_gains(panel) for panel in panels]
    rows = [row for (one, two), question in _two(panels) for row in _rows(question, panels, gains, one, two)]
    table = pd.DataFrame(rows, columns=columns).astype({"difference": float, "error": float})
    counted = table[table["error"].notna()].groupby("question").size()
    table["comparisons"] = table["question"].map(counted).fillna(0).astype(int)
    numbers = list(zip(*(table[key] for key in ("difference", "error", "pairs")), strict=True))
    several = [(*row, count) for row, count in zip(numbers, table["comparisons"], strict=True)]
    table["low"], table["high"] = ([interval(*row)[end] for row in several] for end in (0, 1))
    table["p"] = [p_value(*row) for row in numbers]
    for rows in table.groupby("question").groups.values():
        table.loc[rows, "p"] = holm(table.loc[rows, "p"])
    told = table["p"] < 1 - LEVEL
    better = (table["difference"] < 0).map({True: "better", False: "worse"})
    table["standing"] = better.where(told, "open").mask(table["p"].isna(), "untested")
    needed = [None if known else pairs_needed(*row) for known, row in zip(told, several, strict=True)]
    return table.assign(needed=pd.array(needed, dtype="Int64"))


def _two(panels: list[Panel]) -> Iterator[tuple[tuple[int, int], str]]:
    """Numbers of two panels that differ in one thing alone, the later and the first, and the question that this is."""
    keys = {
        "sizes": lambda panel: (panel.network, panel.transfer),
        "transfers": lambda panel: (panel.network, panel.condition.name),
    }
    for question, key in keys.items():
        groups: dict[tuple[str, str], list[int]] = {}
        for number, panel in enumerate(panels):
            groups.setdefault(key(panel), []).append(number)
        for group in groups.values():
            if question == "sizes":
                group.sort(key=lambda number: panels[number].condition.images("train"))
            yield from (((number, group[0]), question) for number in group[1:])


def _gains(panel: Panel) -> dict[tuple[str, str], pd.Series]:
    """Differences from the baseline by pretraining seed, of label spaces with a meaning that are finer than it."""
    errors = panel.errors()
    if (panel.network, BASELINE) not in errors.index:
        return {}
    baseline, classes = errors.loc[(panel.network, BASELINE)], panel.granularity(BASELINE)
    found = {}
    for network, space in errors.index:
        chance = series.describe(panel.series(space)).meaningless
        if not chance and (panel.granularity(space) or 0) > classes:
            found[network, space] = errors.loc[(network, space)] - baseline
    return found


def _rows(question: str, panels: list[Panel], gains: list[dict], one: int, two: int) -> Iterator[dict[str, Any]]:
    alike: set[tuple[str, ...]] = set()
    for network, space in (key for key in gains[one] if key in gains[two]):
        arms = network, panels[one].alike(space), panels[two].alike(space)
        if arms in alike:  # the same arms under another name
            continue
        alike.add(arms)
        here, there = (gains[number][network, space] for number in (one, two))
        named = {"question": question, "network": network, "space": space}
        named |= {
            "label": panels[one].label,
            "gain": here.mean(),
            "other": panels[two].label,
            "other_gain": there.mean(),
        }
        yield named | paired(here, there)._asdict()
