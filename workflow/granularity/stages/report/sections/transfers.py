"""The answer for each transfer."""

from __future__ import annotations

from granularity.stages.report import questions
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Which way of finetuning, and on which data?"
LINK = "Transfers"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and loaded.results["transfer"].nunique() > 1


def build(loaded: Loaded) -> Part:
    return Part(values={"cases": sorted(questions.cases(loaded.results), key=lambda case: case["transfer"])})


TEMPLATE = """
{{ answered(cases) }}
<p class="note">Each transfer is answered by itself; no interval is of a difference between transfers.</p>
"""
