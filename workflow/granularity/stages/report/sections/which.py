"""Which number of classes: the best label space, and the finest of every family against its coarsest."""

from __future__ import annotations

from granularity.stages.report import questions
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Which number of classes?"
LINK = "Which G"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and bool((loaded.comparisons["question"] == "finest").any())


def build(loaded: Loaded) -> Part:
    best = [case for case in questions.cases(loaded.results) if "space" in case]
    return Part(values={"best": best, "finest": questions.finest(loaded.comparisons)})


TEMPLATE = """
{% for case in best %}
<p>{{ case.label }}: of {{ case.arms | count("label space") }} that are finer than the target and mean something,
{{ case.space }} (G = {{ case.granularity | num(0) }}) has the lowest error{{
", perhaps by chance" if case.answer != "yes" }}.</p>
{% endfor %}
{% call table() %}
{{ columns(["Finest", "Coarsest of the family", "Difference", level ~ " % interval", "Finer or coarser?"],
           ["Coarsest of the family", "Finer or coarser?"]) }}
<tbody>
{% for row in finest %}
{{ group(finest, loop.index0, 5) }}
<tr><th scope="row">{{ row.space }}</th><td class="text">{{ row.other }}</td><td>{{ row.difference | signed }}</td>
<td>{{ interval(row.low, row.high) }}</td><td class="text">{{ row.told }}</td></tr>
{% endfor %}
</tbody>
{% endcall %}
<p class="note">Differences in percentage points; below zero, the finest is better. Which number is best depends on
the data set, the network and the schedule.</p>
"""
