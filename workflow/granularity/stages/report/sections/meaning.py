"""What labels mean, beside how many they are: every label space against labels by chance of the same G.

Where control and label space hold the target alike, their difference is what the labels mean; where only one of the two
does, it is the target's as well, and in no average.
"""

from __future__ import annotations

import pandas as pd

from granularity.stages.report import figures, questions
from granularity.stages.report.comparisons import AVERAGED, HOLDS
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Does the labels’ meaning count, or only their number?"
LINK = "Meaning"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and bool(loaded.results["control"].notna().any())


def build(loaded: Loaded) -> Part:
    results = loaded.results
    paired = results[results["control"].notna()].drop(columns=["difference", "low", "high", "standing"])
    paired = paired.rename(columns=lambda name: name.removeprefix("control_"))
    left_out = paired.loc[~paired["holds"].isin(AVERAGED), ["label", "space", "control", "holds"]]
    same = " = " + paired["repeats"].astype("str")
    paired["space"] += same.where(paired["repeats"].notna(), "") + " − " + paired["control"]
    average = loaded.comparisons[loaded.comparisons["question"] == "meaning"]
    average = average.assign(space="average of " + average["other"], series="average", baseline=average["network"])
    shown = pd.concat([paired, average], ignore_index=True)
    order = {label: place for place, label in enumerate(shown["label"].unique())}
    kinds = {holds: place for place, holds in enumerate(HOLDS)}
    by = shown["label"].map(order) * len(kinds) + shown["holds"].map(kinds)
    shown = shown.loc[by.sort_values(kind="stable").index]
    shown["label"] += ": " + shown["holds"].map(HOLDS)
    drawn = {"meaning": figures.differences(shown, "meaning", "the control")}
    values = {
        "averages": sorted(questions.meaning(loaded.comparisons), key=lambda row: AVERAGED.index(row["holds"])),
        "known": _known(loaded),
        "left_out": [{**row, "holds": HOLDS[row["holds"]]} for row in left_out.to_dict("records")],
    }
    return Part(figures=drawn, values=values)


def _known(loaded: Loaded) -> list[str]:
    """How far label spaces that do not hold the target know it, and their controls: ranges of purity on the target."""
    pairs = loaded.results[loaded.results["control_holds"] == "neither"]
    known = {
        (one.name, space): 100 * found["purity"][one.target]
        for one in loaded.conditions
        for space, found in one.properties.items()
    }
    shares = ([known[at] for at in zip(pairs["condition"], pairs[key], strict=True)] for key in ("space", "control"))
    return [
        " to ".join(dict.fromkeys(f"{end:.0f}" for end in (min(share), max(share)))) + " %" for share in shares if share
    ]


TEMPLATE = """
<p>The control of a label space is labels by chance of the same G. Either holds the target where each of its labels lies
in one target class. Where both do, all that differs is what the labels mean beyond the target; where neither does, what
they say of the target is in the difference.</p>
{% for row in averages %}
<p><span class="verdict {{ row.answer }}">{{ answers[row.answer] }}</span> {{ row.label }}. {{ row.over_pairs }}.
{% if row.holds == "neither" and known %}
By the majority target class of each label, these label spaces know the target of {{ known[0] }} of the images, and
their controls of {{ known[1] }}.
{% endif %}
</p>
{% endfor %}
{% if left_out %}
<p>In no average: {% for row in left_out %}{{ row.space }} beside {{ row.control }} ({{ row.label }}), as {{ row.holds
}}{{ "; " if not loop.last }}{% endfor %}.</p>
{% endif %}
{{ drawing("meaning", "Mean error minus that of labels drawn by chance, as many and with the same seeds; left of zero,
the label space is better. The last line of a group is the average of its pairs. Lines are " ~ level ~ " % intervals
over backbones, corrected for the number of comparisons; filled markers have one that excludes zero.") }}
"""
