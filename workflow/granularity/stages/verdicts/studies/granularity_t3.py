"""Tables 3, 4, 10 and 11 of Hong et al. 2023 (experiments E6 and E7): labels of one data set, finetuned on another.

As in the paper, each arm is finetuned with several learning rates, and the best one counts; linear probes are the
transfers that train the head alone (`freeze_backbone`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
RUNS = 3  # behind each level, as in the paper, on one backbone
CLAIM = "Accuracy on another data set falls from level to level as the labels of the pretraining get coarser"
WAYS = {"finetuned": ("Tables 3 and 10", False), "probed": ("Tables 4 and 11", True)}


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge V10 of each data set that is transferred to, and each network."""
    runs, papers = of.joined(tables), {"finetuned": _papers_best(), "probed": of.paper("T11")}
    runs = runs[(runs["condition"] != runs["pretrained_on"]) & runs["pretrained_on"].notna()]
    if runs.empty:
        yield from _judge("no transfer to another data set", {}, papers)
    for names, part in runs.groupby(["pretrained_on", "home", "condition"], sort=False):
        found = {}
        for way, (_, head_alone) in WAYS.items():
            if len(own := part[part["head_alone"] == head_alone]):
                (found[way],) = of.best(own, tables)
        yield from _judge(" to ".join((", ".join(names[:2]), names[2])), found, papers)


def _judge(where: str, found: dict[str, of.Arms], papers: dict[str, of.Arms]) -> Iterator[Claim]:
    levels = {way: _levels(found[way] if way in found else of.nothing()) for way in WAYS}
    for way, (source, _) in WAYS.items():
        untested = _too_few(levels[way], way)
        shared = {"untested": untested, "seeds": int(levels[way]["runs"].sum())}
        yield Claim(
            "V10",
            CLAIM,
            source,
            f"{where}, {way}: accuracy of a level minus that of the next finer one, in pooled standard deviations",
            _rises(levels[way]),
            high=2,
            reason="an inversion by more than two standard deviations is none of chance; smaller ones pass",
            published=_rises(_levels(papers[way])),
            **shared,
        )
        yield Claim(
            "V10",
            CLAIM,
            source,
            f"{where}, {way}: accuracy of the finest level minus the coarsest's",
            _gap(levels[way]),
            low=ABOVE_ZERO,
            reason=of.SIGN,
            published=_gap(_levels(papers[way])),
            **shared,
        )
    untested = unmet(*((not why, why) for why in (_too_few(levels[way], way) for way in WAYS)))
    yield Claim(
        "V10",
        CLAIM,
        "Tables 3 and 4",
        f"{where}: that difference when probed, minus that when finetuned",
        [] if untested else [_gap(levels["probed"])[0] - _gap(levels["finetuned"])[0]],
        low=ABOVE_ZERO,
        untested=untested,
        reason=of.SIGN,
        published=[_gap(_levels(papers["probed"]))[0] - _gap(_levels(papers["finetuned"]))[0]],
        seeds=sum(int(one["runs"].sum()) for one in levels.values()),
    )


def _papers_best() -> of.Arms:
    """Table 10, each level at the learning rate that is best for it: the means of Table 3, with their spread."""
    table = of.paper("T10").table
    return of.Arms(table.loc[table.groupby("granularity")["mean"].idxmin()])


def _levels(arms: of.Arms) -> pd.DataFrame:
    """WordNet levels, or human ranks where there are more of them; from coarse to fine."""
    return max((arms.of("wordnet"), arms.of("manual")), key=len)


def _too_few(levels: pd.DataFrame, way: str) -> str:
    words = f"{len(levels)} WordNet levels or human ranks {way} on another data set, needs 2"
    return unmet((len(levels) >= 2, words), *of.enough(levels.to_dict("records"), RUNS, 1))


def _rises(levels: pd.DataFrame) -> list[float]:
    """How much more accurate each level is than the next finer one, in standard deviations."""
    arms = levels.to_dict("records")
    return [of.in_stds(finer, one) for one, finer in itertools.pairwise(arms)]


def _gap(levels: pd.DataFrame) -> list[float]:
    return [levels["mean"].iloc[0] - levels["mean"].iloc[-1]] if len(levels) >= 2 else []
