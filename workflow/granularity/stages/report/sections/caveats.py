"""What cannot be concluded: the three that matter most, then the rest."""

from __future__ import annotations

from granularity.stages.report import questions
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "What cannot be concluded"
LINK = "Caveats"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0


def build(loaded: Loaded) -> Part:
    return Part(values={"caveats": questions.caveats(loaded)})


TEMPLATE = """
<ul>
{% for sentence in caveats[:3] %}
<li>{{ sentence }}</li>
{% endfor %}
</ul>
{% if caveats | length > 3 %}
<details>
<summary>{{ caveats | length - 3 }} more</summary>
<ul>
{% for sentence in caveats[3:] %}
<li>{{ sentence }}</li>
{% endfor %}
</ul>
</details>
{% endif %}
"""
