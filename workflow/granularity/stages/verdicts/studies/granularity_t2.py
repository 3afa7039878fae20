"""Tables 2 and 8 of Hong et al. 2023 (experiment E4): WordNet levels of ImageNet-21k, living things or not.

As in the paper, each arm is finetuned in several ways, and the best one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, BELOW_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import BASELINE, Arms, Question, minus

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
CLAIM = "The leaves of WordNet lower the error, and more than its coarse levels do"


def judge(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Judge V9 of each condition and network: each arm as the way of finetuning on the same images that is best."""
    runs = of.joined(tables)
    runs = runs[(runs["condition"] == runs["pretrained_on"]) & runs["from_epoch"].isna()]
    return of.corrected(claim for ours in [*of.best(runs, tables)] or [of.nothing()] for claim in claims(ours))


def claims(ours: Arms) -> Iterator[Claim]:
    """V9, of our arms or of a printed table."""
    levels, paper = ours.of("wordnet"), of.paper("T2")
    several = unmet((len(levels) >= 2, f"{len(levels)} WordNet levels, needs 2"))
    untested = several or of.lacking(ours, levels, "WordNet levels")
    leaves = Question(
        "V9",
        CLAIM,
        "Tables 2 and 8",
        "error minus the baseline's, the finest level",
        lambda arms: [minus(arms.of("wordnet").index[-1], BASELINE)],
        high=BELOW_ZERO,
    ).of(ours, paper, untested, of.against_baseline(ours, chance=False))
    yield from of.single_runs(ours, leaves, high=-1)
    ends = Question(
        "V9",
        CLAIM,
        "Tables 2 and 8",
        "error of the coarsest level minus the finest's",
        lambda arms: [minus(arms.of("wordnet").index[0], arms.of("wordnet").index[-1])],
        low=ABOVE_ZERO,
        reason=f"{of.SIGN}. The ends alone: in between, the paper's own levels 1 and 2 are the other way round",
    ).of(ours, paper, untested)
    yield from of.single_runs(ours, ends, low=of.SINGLE)
