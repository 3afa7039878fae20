"""What labels mean, beside how many they are: every label space against labels by chance of the same G."""

from __future__ import annotations

import pandas as pd

from granularity.stages.report import figures, questions
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Does the labels’ meaning count, or only their number?"
LINK = "Meaning"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and bool(loaded.results["control"].notna().any())


def build(loaded: Loaded) -> Part:
    paired = loaded.results[loaded.results["control"].notna()].drop(columns=["difference", "low", "high", "standing"])
    paired = paired.rename(columns=lambda name: name.removeprefix("control_"))
    paired["space"] = paired["space"] + " − " + paired["control"]
    average = loaded.comparisons[loaded.comparisons["question"] == "meaning"]
    average = average.assign(
        space="all " + average["other"] + " averaged", series="average", baseline=average["network"]
    )
    shown = pd.concat([paired, average], ignore_index=True)
    drawn = {"meaning": figures.differences(shown, "meaning", "the control")}
    return Part(figures=drawn, values={"averages": questions.meaning(loaded.comparisons)})


TEMPLATE = """
{% for row in averages %}
<p><span class="verdict {{ row.answer }}">{{ answers[row.answer] }}</span> {{ row.label }}: {{ row.told }}. Over the
{{ row.other | int | count("label space") }} with labels by chance of the same G beside them, the difference is
{{ row.difference | signed }} points ({{ interval(row.low, row.high) }}).</p>
{% endfor %}
{{ drawing("meaning", "Mean error minus that of labels drawn by chance, as many and with the same seeds; left of zero,
their meaning helps. The last line of each group is the average of its pairs. Lines are " ~ level ~ " % intervals over
backbones, corrected for the number of comparisons; filled markers have one that excludes zero.") }}
"""
