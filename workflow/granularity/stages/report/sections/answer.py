"""Every comparison in words, for each baseline; which labels help."""

from __future__ import annotations

from granularity.stages.report import words
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Every comparison, in words"
LINK = "In words"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0


def build(loaded: Loaded) -> Part:
    results, compared = loaded.results, loaded.comparisons
    values = {
        "findings": [
            (label, words.findings(table, compared[compared["label"] == label]))
            for label, table in results.groupby("label", sort=False)
        ],
        "tally": words.tally(results),
    }
    return Part(values=values)


TEMPLATE = """
{% for label, sentences in findings %}
<h3>{{ label }}</h3>
<ul>
{% for sentence in sentences %}
<li>{{ sentence }}</li>
{% endfor %}
</ul>
{% endfor %}
{% if tally[1] %}
<h3>Which labels?</h3>
{% call table() %}
{{ columns(["Pretraining labels"] + tally[0], tally[0]) }}
<tbody>
{% for name, cells in tally[1] %}
<tr><th scope="row">{{ name }}</th>{% for cell in cells %}<td class="text">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
{% endcall %}
<p class="note">Label spaces by verdict against the retraining baseline. Better and worse are those whose corrected
interval over backbones excludes zero.</p>
{% endif %}
"""
