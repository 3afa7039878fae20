"""Tables 3, 4, 10 and 11 of Hong et al. 2023 (experiments E6 and E7): labels of one data set, finetuned on another.

As in the paper, each arm is finetuned with several learning rates, and the best one counts; linear probes are the
transfers that train the head alone (`freeze_backbone`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from granularity.claims import statistics
from granularity.claims.claim import ABOVE_ZERO, NO_INTERVAL, Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import Arms, Question, average, minus

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
CLAIM = "Accuracy on another data set falls from level to level as the labels of the pretraining get coarser"
WAYS = {"finetuned": ("Tables 3 and 10", False), "probed": ("Tables 4 and 11", True)}


def judge(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Judge V10 of each data set that is transferred to, and each network."""
    runs = of.joined(tables)
    runs = runs[(runs["condition"] != runs["pretrained_on"]) & runs["pretrained_on"].notna()]
    if runs.empty:
        return list(claims({}, "no transfer to another data set"))
    claimed: list[Claim] = []
    for names, part in runs.groupby(["pretrained_on", "home", "condition"], sort=False):
        found = {}
        for way, (_, head_alone) in WAYS.items():
            if len(own := part[part["head_alone"] == head_alone]):
                (found[way],) = of.best(own, tables)
        claimed += claims(found, " to ".join((", ".join(names[:2]), names[2])))
    return of.corrected(claimed)


def paper() -> dict[str, Arms]:
    """The paper's levels: Table 10, each at the learning rate that is best for it, and Table 11."""
    tuned = of.paper("T10")
    best = tuned.table.loc[tuned.table.groupby("granularity")["mean"].idxmin()]
    return {"finetuned": replace(tuned, table=best), "probed": of.paper("T11")}


def claims(found: dict[str, Arms], where: str) -> Iterator[Claim]:
    """V10, from the arms of each of `WAYS`: ours, or the paper's."""
    theirs = paper()
    short = {way: _too_few(found.get(way), way) for way in WAYS}
    for way, (source, _) in WAYS.items():
        ours = replace(found.get(way, of.nothing()), where=f"{where}, {way}")
        yield from Question(
            "V10",
            CLAIM,
            source,
            "accuracy of the finest level minus the coarsest's",
            lambda arms: [minus(_levels(arms)[0], _levels(arms)[-1])],
            low=ABOVE_ZERO,
        ).of(ours, theirs[way], short[way])
        yield _inverted(ours, theirs[way], source, short[way])
    both = of.beside(**found) if found else of.nothing()
    yield from Question(
        "V10",
        CLAIM,
        "Tables 3 and 4",
        "that difference when probed, minus that when finetuned",
        lambda arms: [
            average([_gap(arms, "probed", 2), _gap(arms, "finetuned", -2)])  # of two, the sum
        ],
        low=ABOVE_ZERO,
    ).of(replace(both, where=where), of.beside(**theirs), unmet(*((not why, why) for why in short.values())))


def _inverted(ours: Arms, paper: Arms, source: str, untested: str) -> Claim:
    """How many steps to a coarser level raise the accuracy, by an interval that is corrected for their number."""

    def steps(arms: Arms) -> list[statistics.Difference]:
        return [arms.contrast(minus(finer, one)) for one, finer in itertools.pairwise(_levels(arms))]

    found = [] if untested else steps(ours)
    ends = [statistics.interval(*one, len(found)) for one in found]
    untested = untested or unmet((not any(math.isnan(low) for low, _ in ends), NO_INTERVAL))
    return Claim(
        "V10",
        CLAIM,
        source,
        f"{ours.where}: levels that are better than the next finer one",
        [sum(low > 0 for low, _ in ends)] if found else [],
        high=0,
        untested=untested,
        reason="an inversion whose interval holds zero is none",
        published=[sum(one.difference > 0 for one in steps(paper))],
    )


def _levels(arms: Arms) -> list[str]:
    """WordNet levels, or human ranks where there are more of them; from coarse to fine."""
    return max((list(arms.of(family).index) for family in ("wordnet", "manual")), key=len)


def _gap(arms: Arms, way: str, factor: float) -> dict[str, float]:
    """How much lower the error of the finest level is than the coarsest's, one way, times a factor."""
    own = replace(arms, table=arms.table[arms.table.index.str.startswith(f"{way}/")])
    levels = _levels(own)
    return {levels[0]: factor, levels[-1]: -factor}


def _too_few(arms: Arms | None, way: str) -> str:
    levels = _levels(arms) if arms is not None else []
    return unmet((len(levels) >= 2, f"{len(levels)} WordNet levels or human ranks {way} on another data set, needs 2"))
