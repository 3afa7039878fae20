"""A table of the paper beside results on the images and the target that it is about, and beside no others."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from granularity.claims import published
from granularity.stages.report import series, words
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "What the paper found"
LINK = "The paper"
BASELINE = "baseline"


class Experiment(NamedTuple):
    """An experiment of the paper: source and number of target classes, its network as timm names it, its table."""

    source: str
    classes: int
    network: str
    table: str


EXPERIMENTS = (
    Experiment("inaturalist", 11, "resnet34", "T5"),
    Experiment("inaturalist", 11, "resnet50", "T7"),
    Experiment("imagenet", 1000, "resnet50", "T9"),
    Experiment("imagenet21k", 2, "vit_base_patch16_224", "T2"),
)


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and _experiment(loaded) is not None


def _experiment(loaded: Loaded) -> Experiment | None:
    """The experiment on these images and target: that of the same network, where there is one, else the first."""
    fitting = [one for one in EXPERIMENTS if any(_fits(one, condition) for condition in loaded.conditions)]
    same = [one for one in fitting if loaded.architectures == [one.network]]
    return next(iter(same + fitting), None)


def _fits(experiment: Experiment, condition: ConditionResults) -> bool:
    samples = condition.samples
    found = samples.facts["source"], samples.summary["classes"][condition.target]
    return found == (experiment.source, experiment.classes)


def build(loaded: Loaded) -> Part:
    name = _experiment(loaded).table
    table = published.with_baselines(name).astype({"x": int}).rename(columns={"x": "granularity"})
    table = table[table["arm"] != "one pass"]
    baseline = table[table["arm"] == BASELINE].iloc[0]
    table["difference"] = table["mean"] - baseline["mean"]
    values = {
        "rows": _side_by_side(table, loaded.results),
        "baseline": baseline.to_dict(),
        "all": table.to_dict("records"),
        "table_name": f"Table {name.removeprefix('T')}",
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
<p>{{ table_name }} of the paper is about: {{ baseline.setting }}. Here it was {{ architectures }} on {{ sizes }}
images. The paper's retraining baseline is at {{ baseline.mean | num }} % (std {{ baseline["std"] | num(3) }}).</p>
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
<summary>Every number of {{ table_name }}</summary>
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
