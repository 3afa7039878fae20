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
    results = loaded.results
    compared = results[(results["role"] != "baseline") & results["difference"].notna()]
    return Part(figures={"differences": figures.differences(compared, "differences", "the baseline")})


TEMPLATE = """
{{ drawing("differences", "Mean error minus that of the retraining baseline; left of zero is better. Lines are "
~ level ~ " % intervals over backbones, corrected for the number of comparisons; filled markers have one that excludes
zero.") }}
"""
