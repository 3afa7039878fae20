"""How far each arm is from its baseline."""

from __future__ import annotations

from granularity.stages.report import figures
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Differences from the baseline"
LINK = "Differences"


def applies(loaded: Loaded) -> bool:
    if loaded.results.empty:
        return False
    return bool(loaded.results.loc[loaded.results["role"] != "baseline", "difference"].notna().any())


def build(loaded: Loaded) -> Part:
    return Part(figures={"differences": figures.differences(loaded.results)})


TEMPLATE = """
{{ drawing("differences", "Mean error minus that of the retraining baseline; left of zero is better. Lines are "
~ level ~ " % intervals (Welch's t, over runs), not adjusted for the number of comparisons. Filled markers differ also
after Holm's adjustment, and when each backbone counts once.") }}
"""
