"""Hong et al. 2023, the baselines (experiment E8): training on the target's labels twice, against once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import BASELINE, ONE_PASS, Arms, Question, minus

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
SOURCES = {"inaturalist": "T5", "imagenet21k": "T2", "imagenet": "T9"}  # whose table has the baseline
QUESTION = Question(
    "V11",
    "Training on the target's labels twice is better than once",
    "Appendix, Tables 2 and 5",
    "error after one pass minus the retraining baseline's",
    lambda arms: [minus(ONE_PASS, BASELINE)],
    low=ABOVE_ZERO,
)


def judge(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Judge V11 of each condition, network and way of finetuning on the same images."""
    return of.corrected(claim for ours in of.same_images(tables) for claim in claims(ours))


def claims(ours: Arms) -> Iterator[Claim]:
    """V11, of our arms or of a printed table."""
    untested = of.lacking(ours, ours.table, "any kind") or unmet((ours.has(ONE_PASS), "no error after one pass"))
    found = QUESTION.of(
        ours, of.paper(SOURCES.get(ours.source, "T5")), untested, of.against_baseline(ours, chance=True)
    )
    yield from of.single_runs(ours, found, low=of.SINGLE)
