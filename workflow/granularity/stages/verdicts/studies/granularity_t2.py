"""Tables 2 and 8 of Hong et al. 2023 (experiment E4): WordNet levels of ImageNet-21k, living things or not.

As in the paper, each arm is finetuned in several ways, and the best one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, BELOW_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
CLAIM = "The leaves of WordNet lower the error, and more than its coarse levels do"


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge V9 of each condition and network: each arm as the way of finetuning on the same images that is best."""
    runs = of.joined(tables)
    runs = runs[(runs["condition"] == runs["pretrained_on"]) & runs["from_epoch"].isna()]
    for ours in [*of.best(runs, tables)] or [of.nothing()]:
        yield from _of(ours, of.paper("T2"))


def _of(ours: of.Arms, paper: of.Arms) -> Iterator[Claim]:
    levels, theirs = ours.of("wordnet"), paper.of("wordnet")
    full = ours.is_from("imagenet21k", 2)
    several = unmet((len(levels) >= 2, f"{len(levels)} WordNet levels, needs 2"))
    ends = levels.iloc[[0, -1]] if len(levels) >= 2 else levels.iloc[:0]
    if full:  # the paper has one run of each, and a margin that stands for its noise
        untested = several or unmet((ours.baseline is not None, "no baseline"))
    else:
        untested = several or ours.too_few(ends, "WordNet levels")
    shared = {"untested": untested, "seeds": int(ends["runs"].sum())}
    yield Claim(
        "V9",
        CLAIM,
        "Tables 2 and 8",
        f"{ours.where}: error minus the baseline's, the finest level",
        ours.differences(ends.iloc[1:]),
        high=-1 if full else BELOW_ZERO,
        reason="the task's own margin" if full else of.SIGN,
        published=paper.differences(theirs.iloc[-1:]),
        **shared,
    )
    coarsest_minus_finest = [ends["mean"].iloc[0] - ends["mean"].iloc[1]] if len(ends) else []
    yield Claim(
        "V9",
        CLAIM,
        "Tables 2 and 8",
        f"{ours.where}: error of the coarsest level minus the finest's",
        coarsest_minus_finest,
        low=ABOVE_ZERO,
        reason="an ordering of the ends alone: in between, the paper's own levels 1 and 2 are the other way round",
        published=[theirs["mean"].iloc[0] - theirs["mean"].iloc[-1]],
        **shared,
    )
