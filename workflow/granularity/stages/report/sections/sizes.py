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
    cases = sorted(questions.cases(loaded.results), key=lambda case: case["train_images"])
    return Part(questions.gains(loaded, "sizes", "gains_by_size"), values={"cases": cases, "note": questions.GAINS})


TEMPLATE = """
{{ answered(cases) }}
<p class="note">Each size is answered by itself. A yes beside a “can’t be told” is no evidence that they differ.</p>
{% if "gains_by_size" in tables %}
<h3>Does the gain differ between sizes?</h3>
{{ changed(tables.gains_by_size) }}
<p class="note">The difference from the baseline at a size minus that at the smallest, in percentage points; below zero,
more is gained at the larger size. Where the baseline’s error is smaller there is less to gain. Paired by pretraining
seed, which the sizes share; they are not the same backbones. {{ note }} <span
class="file">tables/gains_by_size.csv</span></p>
{% endif %}
"""
