"""Which number of classes: the best label space, and the finest of every family against its coarsest."""

from __future__ import annotations

from collections import Counter

from granularity.stages.report import questions, words
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Which number of classes?"
LINK = "Which G"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and bool((loaded.comparisons["question"] == "finest").any())


def build(loaded: Loaded) -> Part:
    best = [case for case in questions.cases(loaded.results) if "space" in case]
    finest = questions.finest(loaded.comparisons)
    counts = Counter(row["told"] for row in finest)
    told = words.listing(f"{one} in {number}" for one, number in counts.items())
    return Part(values={"best": best, "finest": finest, "told": told})


TEMPLATE = """
<p>The finest label space of each family against its coarsest: {{ told }}.</p>
{% if best %}
<p>The best of the label spaces that are finer than the target and mean something:</p>
<ul>
{% for case in best %}
<li>{{ case.label }}: {{ case.space }} (G = {{ case.granularity | num(0) }}), picked from {{ case.arms }}{{
", perhaps by chance" if case.answer != "yes" }}</li>
{% endfor %}
</ul>
{% endif %}
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
