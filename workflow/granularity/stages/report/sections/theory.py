"""What papers claim about two-layer worlds, and what became of it in simulation."""

from __future__ import annotations

from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "The theory, simulated"
LINK = "Theory"


def applies(loaded: Loaded) -> bool:
    return bool(loaded.worlds)


def build(loaded: Loaded) -> Part:
    return Part()


TEMPLATE = """
<p>Two-layer worlds in which the papers' claims can be checked exactly. Each claim stands beside what was measured; a
band is the paper's or comes from pilot runs, and every seed must lie in it unless the quantity says mean, median or
interval. A claim that fails here fails for this implementation, at this size.</p>
{% for world in loaded.worlds %}
{{ judged(world) }}
{% endfor %}
"""
