"""The table of results."""

from __future__ import annotations

from granularity.stages.report import words
from granularity.stages.report.comparisons import AVERAGED, HOLDS, SAME
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Results"
LINK = "Results"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0


def build(loaded: Loaded) -> Part:
    table = loaded.results
    more = [key for key in ("network", "transfer") if table[key].nunique() > 1]
    lent = table[(table["network"] != table["baseline"]) & table["baseline"].notna()]
    lenders = {(row.network, row.baseline) for row in lent.itertuples()}
    values = {"more": more, "lenders": sorted(lenders), "same": round(100 * SAME)}
    values["unlike"] = [holds for holds in HOLDS if holds not in AVERAGED]
    values["starred"] = bool(table["control_holds"].isin(values["unlike"]).any())
    values["repeated"] = bool(table["repeats"].notna().any())
    asked = set(words.finer(table).index)
    values["asked"] = [place in asked for place in table.index]
    return Part({"results": table, "comparisons": loaded.comparisons}, values=values)


TEMPLATE = """
{% call table() %}
{{ columns(["Label space"] + more | map("capitalize") | list + ["G", "Backbones (runs)", "Error (%)", "Std",
            "Difference", level ~ " % interval", "Verdict", "Control of the same G", "Difference from it",
            level ~ " % interval", "Against it", "Before finetuning (%)"],
           ["Network", "Transfer", "Verdict", "Control of the same G", "Against it"]) }}
<tbody>
{% for row in tables.results %}
{{ group(tables.results, loop.index0, 12 + more | length) }}
<tr>
<th scope="row">{{ row.space }}{{ " = " ~ row.repeats if row.repeats is string }}</th>
{% for key in more %}<td class="text">{{ row[key] }}</td>{% endfor %}
<td>{{ row.granularity | num(0) }}</td>
<td>{{ row.backbones }} ({{ row.runs }})</td><td>{{ row.mean | num }}</td><td>{{ row["std"] | num }}</td>
<td>{{ row.difference | signed }}</td><td>{{ interval(row.low, row.high) }}</td>
<td class="text">{{ chip(row.standing, asked[loop.index0]) }}</td>
<td class="text">{{ row.control | name }}{{ " *" if row.control_holds in unlike }}</td>
<td>{{ row.control_difference | signed }}</td>
<td>{{ interval(row.control_low, row.control_high) }}</td>
<td class="text">{{ chip(row.control_standing, false) }}</td><td>{{ row.pretrain_mean | num }}</td>
</tr>
{% endfor %}
</tbody>
{% endcall %}
<p class="note">Validation error on the target; differences in percentage points. Each backbone counts once, with the
mean of its runs. Differences are between backbones of the same pretraining seed; their intervals are corrected for the
number of comparisons, and a verdict of better or worse is one whose interval excludes zero. The control has labels
drawn by chance and the same G within {{ same }} %. “Before finetuning” is the error of the pretrained network itself,
each predicted class counting as its parent in the target.
{% if starred %}
* One of the two holds the target (each of its labels lies in one target class), and the other does not: what the target
says is in their difference.
{% endif %}
{% if repeated %}
“=”: it parts the images as the other label space does; both have the mean over the runs of both, and count once.
{% endif %}
{% for network, baseline in lenders %}
Network “{{ network }}” has no runs on the target labels of its own: it is compared with the baseline of
“{{ baseline }}”.
{% endfor %}
<span class="file">tables/results.csv</span>, and every comparison: <span class="file">tables/comparisons.csv</span></p>
"""
