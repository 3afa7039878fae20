"""The table of results."""

from __future__ import annotations

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
    return Part({"results": table}, values={"more": more, "lenders": sorted(lenders)})


TEMPLATE = """
{% call table() %}
{{ columns(["Label space"] + more | map("capitalize") | list + ["G", "Runs (backbones)", "Error (%)", "Std",
            "Difference", level ~ " % interval", "Adjusted p", "Verdict", level ~ " % interval over backbones",
            "Before finetuning (%)"], ["Network", "Transfer", "Verdict"]) }}
<tbody>
{% for row in tables.results %}
{{ group(tables.results, loop.index0, 11 + more | length) }}
<tr>
<th scope="row">{{ row.space }}</th>{% for key in more %}<td class="text">{{ row[key] }}</td>{% endfor %}
<td>{{ row.granularity | num(0) }}</td>
<td>{{ row.runs }} ({{ row.backbones }})</td><td>{{ row.mean | num }}</td><td>{{ row["std"] | num }}</td>
<td>{{ "–" if row.role == "baseline" else row.difference | signed }}</td>
<td>{{ interval(row.low, row.high) }}</td><td>{{ row.p_holm | p }}</td>
<td class="text"><span class="verdict {{ row.standing }}">{{ row.verdict }}</span></td>
<td>{{ interval(row.backbone_low, row.backbone_high) }}</td><td>{{ row.pretrain_mean | num }}</td>
</tr>
{% endfor %}
</tbody>
{% endcall %}
<p class="note">Validation error on the target; differences in percentage points. Std and the first interval are over
runs; runs finetuned from one backbone are not independent, so a verdict of better or worse also needs the interval
over backbones, in which each pretraining seed counts once, to exclude zero. P is adjusted by Holm's method over all
comparisons of this page. “Before finetuning” is the error of the pretrained network itself, each predicted class
counting as its parent in the target. One-pass runs are their own backbones.
{% for network, baseline in lenders %}
Network “{{ network }}” has no runs on the target labels of its own: it is compared with the baseline of
“{{ baseline }}”.
{% endfor %}
<span class="file">tables/results.csv</span></p>
"""
