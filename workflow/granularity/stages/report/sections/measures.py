"""Measured numbers that no other section shows, as plain tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "What else was measured"
LINK = "Measures"
MOST = 400  # rows on the page, of a measure
SIDE_BY_SIDE = 6  # keys of a measure that stand as columns beside one another
WORDS = {"error": "Error, top-1 (%)", "macro_f1": "Macro-F1 (%)", "images": "Images", "error_any": "Error, any (%)"}


def applies(loaded: Loaded) -> bool:
    return len(loaded.measures) > 0


def build(loaded: Loaded) -> Part:
    table = loaded.measures
    shown = [_shown(name, part) for name, part in table.groupby("measure", sort=False)]
    return Part({"measures": table}, values={"shown": shown, "words": WORDS})


def _shown(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """A measure's rows for the page: keys as columns, `values`, where they are few."""
    keys, rows = list(dict.fromkeys(table["key"])), table.to_dict("records")
    if len(keys) <= SIDE_BY_SIDE:
        found: dict[tuple, dict[str, Any]] = {}
        for row in rows:
            where = tuple(row[key] for key in ("label", "space", "state", "split"))
            found.setdefault(where, {**row, "values": dict.fromkeys(keys)})["values"][row["key"]] = row["mean"]
        rows = list(found.values())
    else:
        keys = []
    more = [key for key in ("state", "split") if table[key].nunique() > 1]
    return {"name": name, "names": keys, "rows": rows[:MOST], "all": len(rows), "more": more}


TEMPLATE = """
{% for measure in shown %}
<h3>{{ measure.name }}</h3>
{% call table() %}
<thead><tr>
<th scope="col">Label space</th><th scope="col" class="text">Labels</th><th scope="col">G</th>
{% for key in measure.more %}<th scope="col" class="text">{{ key | capitalize }}</th>{% endfor %}
<th scope="col">Networks</th>
{% for key in measure.names %}<th scope="col">{{ words.get(key, key) }}</th>{% else %}
<th scope="col" class="text">Quantity</th><th scope="col">Mean</th><th scope="col">Lowest</th><th
scope="col">Highest</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in measure.rows %}
{{ group(measure.rows, loop.index0, 4 + measure.more | length + (measure.names | length or 4)) }}
<tr><th scope="row">{{ row.space }}</th><td class="text">{{ series(row.series) }}</td>
<td>{{ row.granularity | num(0) }}</td>{% for key in measure.more %}<td class="text">{{ row[key] }}</td>{% endfor %}
<td>{{ row.networks }}</td>
{% for key in measure.names %}<td>{{ row["values"][key] | num(0 if key == "images" else 2) }}</td>{% else %}
<td class="text">{{ row.key }}</td><td>{{ row.mean | num(4) }}</td><td>{{ row["min"] | num(4) }}</td>
<td>{{ row["max"] | num(4) }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
{% endcall %}
<p class="note">Means over networks.
{% if measure.all > measure.rows | length %}
{{ measure.all - measure.rows | length }} more rows are in the file.
{% endif %}
<span class="file">tables/measures.csv</span></p>
{% endfor %}
"""
