"""What cannot be concluded: the three that matter most, then the rest."""

from collections.abc import Iterator
from typing import Any

from granularity.stages.report.comparisons import QUESTIONS
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part
from granularity.stages.report.sections.clusters import encoder_of

HEADING = "What cannot be concluded"


def build(loaded: Loaded) -> Part | None:
    conditions, results, compared = loaded.conditions, loaded.results, loaded.comparisons
    if results.empty:
        return None
    asked = compared[compared["comparisons"] > 0].drop_duplicates("question")
    alike = []  # label spaces of one condition that divide its images identically
    for one in conditions:
        groups = {first: [space for space in one.alike if one.alike[space] == first] for first in one.alike.values()}
        alike += [(one.label, spaces) for spaces in groups.values() if len(spaces) > 1]
    validation = list(dict.fromkeys(condition.images("val") for condition in conditions))
    clustered = any(condition.of("cluster") for condition in conditions)
    values = {
        "twins": [one for condition in conditions for one in twins(condition)],
        "images": [f"{number:,}, each {100 / max(1, number):.2g} %" for number in validation],
        "encoder": encoder_of(conditions) if clustered else None,
        "alike": alike,
        "asked": [f"{QUESTIONS[row.question]} ({row.comparisons})" for row in asked.itertuples()],
        "backbones": sorted({*results.loc[results["role"] != "one_pass", "backbones"].astype(int)}),
    }
    return Part(values=values)


def twins(condition: ConditionResults) -> Iterator[dict[str, Any]]:
    """Yield each split with near duplicates in training: the number of such images, and of those with another class."""
    for artifact in condition.of("duplicates"):
        table = artifact.table("findings.parquet", ["finding", "split", "class", "twin_class"])
        table = table[table["finding"] == "near_in_both_splits"]
        for split, rows in table.groupby("split", sort=False):
            mismatches = int((rows["class"] != rows["twin_class"]).sum())
            counts = {"images": len(rows), "of": condition.images(split), "other": mismatches}
            yield {"split": split, "label": condition.label, **counts}
