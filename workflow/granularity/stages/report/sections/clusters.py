"""Images of some clusters, and what they hold."""

from __future__ import annotations

from granularity.data.shards import pictures
from granularity.stages.report import montage
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Inside the clusters"
LINK = "Clusters"


def applies(loaded: Loaded) -> bool:
    chosen = montage.choose(loaded.conditions)
    return loaded.options.montage_clusters > 0 and chosen is not None and bool(chosen[0].of("pixels"))


def build(loaded: Loaded) -> Part:
    condition, space = montage.choose(loaded.conditions)
    found = montage.rows(condition, space, loaded.options.montage_clusters)
    (pixels,) = condition.of("pixels")
    values = {"of": f"{space.name} ({condition.label})", "rank": condition.ranks[-1]}
    return Part(figures={"montage": montage.draw(found, pictures(pixels))}, values=values)


TEMPLATE = """
{{ drawing("montage", "Clusters of " ~ of ~ ", from the largest to the smallest, evenly over the order of sizes;
the first images of each in the order of the sample table, not the prettiest. Composition: share of each “"
~ rank ~ "” in the cluster.") }}
"""
