"""What each stage cost."""

from __future__ import annotations

from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "What it cost"
LINK = "Cost"


def applies(loaded: Loaded) -> bool:
    return len(loaded.cost) > 0


def build(loaded: Loaded) -> Part:
    return Part({"cost": loaded.cost}, values={"gpu": "gpu_seconds" in loaded.cost})


TEMPLATE = """
{% call table() %}
{{ columns(["Stage", "Jobs", "Wall clock (s)", "CPU (s)", "Largest memory of a job (MB)"]
  + (["With a GPU (s)", "Largest GPU memory of a job (MB)"] if gpu else [])) }}
<tbody>
{% for row in tables.cost %}
<tr><th scope="row">{{ row.stage }}</th><td>{{ row.jobs }}</td><td>{{ row.wall_seconds | num(1) }}</td>
<td>{{ row.cpu_seconds | num(1) }}</td><td>{{ row.peak_memory_mb | num(0) }}</td>
{% if gpu %}<td>{{ row.gpu_seconds | num(1) }}</td><td>{{ row.gpu_peak_memory_mb | num(0) }}</td>{% endif %}</tr>
{% endfor %}
</tbody>
<tfoot>
<tr><th scope="row">all</th><td>{{ tables.cost | sum(attribute="jobs") }}</td>
<td>{{ tables.cost | sum(attribute="wall_seconds") | num(1) }}</td>
<td>{{ tables.cost | sum(attribute="cpu_seconds") | num(1) }}</td>
<td>{{ tables.cost | map(attribute="peak_memory_mb") | max | num(0) }}</td>
{% if gpu %}<td>{{ tables.cost | sum(attribute="gpu_seconds") | num(1) }}</td><td></td>{% endif %}</tr>
</tfoot>
{% endcall %}
<p class="note">From the manifests; seconds are added up over jobs, also where they ran side by side. Start-up and
imports of a job come on top. <span class="file">tables/cost.csv</span></p>
"""
