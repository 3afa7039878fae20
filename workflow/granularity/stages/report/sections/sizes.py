"""The answer at each training-set size."""

from __future__ import annotations

from granularity.stages.report import questions
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Which training-set size?"
LINK = "Sizes"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and loaded.results["train_images"].nunique() > 1


def build(loaded: Loaded) -> Part:
    return Part(values={"cases": sorted(questions.cases(loaded.results), key=lambda case: case["train_images"])})


TEMPLATE = """
{{ answered(cases) }}
<p class="note">Each size is answered by itself. A yes beside a “can’t be told” is no evidence that they differ: no
interval is of a difference between sizes.</p>
"""
