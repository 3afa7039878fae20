"""The error against the number of classes in pretraining."""

from __future__ import annotations

from granularity.stages.report import figures
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "The granularity curve"
LINK = "Curve"


def applies(loaded: Loaded) -> bool:
    return len(loaded.results) > 0 and bool(loaded.results["granularity"].notna().any())


def build(loaded: Loaded) -> Part:
    unlabelled = bool(loaded.results["granularity"].isna().any())
    return Part(
        figures={"granularity_curve": figures.granularity_curve(loaded.results)}, values={"unlabelled": unlabelled}
    )


TEMPLATE = """
{{ drawing("granularity_curve", "Error of the finetuned network on the target against the number of classes it was
pretrained on. Points are means over backbones, bars their "
~ level ~ " % intervals (of a mean by itself; the table has those of differences). Points of equal G are
moved apart sideways by a few percent."
~ (" What was pretrained without labels has no G: its point stands at the right edge, on a dotted line." if
unlabelled)) }}
"""
