"""What probes read from frozen networks."""

from __future__ import annotations

import pandas as pd

from granularity.stages.report import figures
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "What the frozen networks hold"
LINK = "Probes"


def applies(loaded: Loaded) -> bool:
    return len(loaded.probe) > 0


def build(loaded: Loaded) -> Part:
    table = loaded.probe
    drawn = {}
    for measure, found in table.groupby("measure", sort=False):
        found = found[found["state"].isin(["pretrained", "embedding"])]
        found = found[found["split"] == ("val" if "val" in set(found["split"]) else found["split"].min())]
        name = "probe" if len(drawn) == 0 else f"probe_{measure}"
        if len(found):
            drawn[name] = figures.probe(found, shown_ranks(loaded, found), name)
    more = [key for key in ("measure", "split", "state") if set(table[key]) - {"val", "pretrained", "embedding"}]
    more = [key for key in more if table[key].nunique() > 1]
    return Part({"probe": table}, drawn, {"more": more, "embedded": (table["state"] == "embedding").any()})


def shown_ranks(loaded: Loaded, table: pd.DataFrame) -> list[str]:
    """The target rank and the finest of those probed; the coarsest of them where the target was not."""
    condition = loaded.conditions[0]
    probed = [rank for rank in condition.ranks if rank in set(table["rank"])]
    return list(dict.fromkeys([condition.target if condition.target in probed else probed[0], probed[-1]]))


TEMPLATE = """
{% for name in figures %}
{{ drawing(name, "Error of a linear and a nearest-neighbour probe on the frozen pretrained network, for each rank.
Points are means over backbones, lines reach from the best to the worst backbone."
~ (" “embedding” is the encoder's embedding itself, for comparison." if embedded)) }}
{% endfor %}
<details>
<summary>Table of probe errors</summary>
{% call table() %}
{{ columns(["Label space", "Labels", "G"] + more | map("capitalize") | list
           + ["Rank", "Probe", "Backbones", "Error (%)", "Best", "Worst"],
           ["Labels", "Measure", "Split", "State", "Rank", "Probe"]) }}
<tbody>
{% for row in tables.probe %}
{{ group(tables.probe, loop.index0, 9 + more | length) }}
<tr><th scope="row">{{ row.space }}</th><td class="text">{{ series(row.series) }}</td>
<td>{{ row.granularity | num(0) }}</td>{% for key in more %}<td class="text">{{ row[key] }}</td>{% endfor %}
<td class="text">{{ row["rank"] }}</td>
<td class="text">{{ row.probe }}</td><td>{{ row.backbones }}</td><td>{{ row.mean | num }}</td>
<td>{{ row["min"] | num }}</td><td>{{ row["max"] | num }}</td></tr>
{% endfor %}
</tbody>
{% endcall %}
<p class="note"><span class="file">tables/probe.csv</span></p>
</details>
"""
