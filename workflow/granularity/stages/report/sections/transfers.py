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
    cases = sorted(questions.cases(loaded.results), key=lambda case: case["transfer"])
    gains = questions.gains(loaded, "transfers", "gains_by_transfer")
    return Part(gains, values={"cases": cases, "note": questions.GAINS})


TEMPLATE = """
{{ answered(cases) }}
<p class="note">Each transfer is answered by itself.</p>
{% if "gains_by_transfer" in tables %}
<h3>Does the gain differ between transfers?</h3>
{{ changed(tables.gains_by_transfer) }}
<p class="note">The difference from the baseline in a transfer minus that in the first, in percentage points; below
zero, more is gained than in the first. On other images errors are of another size. Paired by backbone: the transfers
start from the same ones. {{ note }} <span class="file">tables/gains_by_transfer.csv</span></p>
{% endif %}
"""
