"""The paper's Table 5, beside results on its own images and target: iNaturalist 2021 and the 11 superclasses."""

from __future__ import annotations

from typing import Any

import pandas as pd

from granularity.claims import published
from granularity.stages.report import series, words
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "What the paper found"
LINK = "The paper"
BASELINE = "baseline"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and any(map(_fits, loaded.conditions))


def _fits(condition: ConditionResults) -> bool:
    samples = condition.samples
    return samples.facts["source"] == "inaturalist" and samples.summary["classes"][condition.target] == 11


def build(loaded: Loaded) -> Part:
    table = published.rows("granularity", "T5").astype({"x": int}).rename(columns={"x": "granularity"})
    baseline = table[table["arm"] == BASELINE].iloc[0]
    table["difference"] = table["mean"] - baseline["mean"]
    values = {
        "rows": _side_by_side(table, loaded.results),
        "baseline": baseline.to_dict(),
        "all": table.to_dict("records"),
        "labels": list(loaded.results["label"].unique()),
        "sizes": words.listing(f"{condition.images('train'):,}" for condition in loaded.conditions),
        "architectures": words.listing(loaded.architectures),
    }
    return Part(values=values)


def _side_by_side(table: pd.DataFrame, results: pd.DataFrame) -> list[dict[str, Any]]:
    """The range of differences in each family, in the paper and here, in percentage points."""
    rows = []
    for family in dict.fromkeys(arm for arm in table["arm"] if arm != BASELINE):
        theirs = table[table["arm"] == family]
        ours = results[(results["family"] == family) & (results["role"] == "arm") & results["difference"].notna()]
        here = [ours[ours["label"] == label] for label in results["label"].unique()]
        rows.append({"family": series.words(family), "paper": _range(theirs), "here": [_range(part) for part in here]})
    return rows


def _range(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "–"
    low, high = rows.loc[rows["difference"].idxmin()], rows.loc[rows["difference"].idxmax()]
    text = f"{words.signed(low['difference'])} (G = {low['granularity']:,})"
    return text if len(rows) == 1 else f"{text} to {words.signed(high['difference'])} (G = {high['granularity']:,})"


TEMPLATE = """
<p>The paper trained ResNet34 on 500,000 images, at least 6 runs per arm; here it was {{ architectures }} on {{ sizes
}}. The paper's retraining baseline is at {{ baseline.mean | num }} % (std {{ baseline["std"] | num(3) }}).</p>
{% call table() %}
{{ columns(["Pretraining labels", "Paper: differences (points)"] + labels) }}
<tbody>
{% for row in rows %}
<tr><th scope="row">{{ row.family }}</th><td>{{ row.paper }}</td>{% for cell in row.here %}<td>{{ cell }}</td>{%
endfor %}</tr>
{% endfor %}
</tbody>
{% endcall %}
<p class="note">Lowest to highest difference from the own retraining baseline, in percentage points; below zero is
better. Lowest and highest are picked from several, and so look more extreme than they are.</p>
<details>
<summary>Every published number (Table 5, the means also in Table 1)</summary>
{% call table() %}
{{ columns(["Pretraining labels", "G", "Error (%)", "Std", "Difference", "Note"], ["Note"]) }}
<tbody>
{% for row in all %}
<tr><th scope="row">{{ series(row.arm) }}</th><td>{{ row.granularity | num(0) }}</td><td>{{ row.mean | num }}</td>
<td>{{ row["std"] | num(3) }}</td><td>{{ row.difference | signed }}</td><td class="text">{{ row.note }}</td></tr>
{% endfor %}
</tbody>
{% endcall %}
</details>
"""
