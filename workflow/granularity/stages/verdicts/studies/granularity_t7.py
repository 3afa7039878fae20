"""Table 7 of Hong et al. 2023 (experiment E3): human ranks and random IDs again, on another architecture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, BELOW_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import BASELINE, Arms, Question
from granularity.stages.verdicts.studies.granularity_t5 import RANDOM

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
CLAIM = "On another architecture, too, finer human labels help and random IDs do not"


def judge(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Judge V13 of every architecture, in each condition and way of finetuning on the same images."""
    found = of.same_images(tables)
    architectures = len({ours.architecture for ours in found if ours.has(BASELINE)})
    return of.corrected(claim for ours in found for claim in claims(ours, architectures))


def claims(ours: Arms, architectures: int = 1) -> Iterator[Claim]:
    """V13, of our arms or of a printed table; `architectures`: how many of them have a baseline."""
    papers = ours.is_from("inaturalist", 11) and ours.architecture == "resnet50"
    known = unmet((papers or architectures >= 2, f"baselines of {architectures} architectures, needs 2"))
    at = f", {ours.architecture}" if ours.architecture else ""
    for words, what, find, chance, band in (
        ("human ranks", "finer human labels", lambda arms: arms.finer(arms.classes), False, {"high": BELOW_ZERO}),
        ("numbers of random IDs", "random IDs", lambda arms: arms.of(*RANDOM), True, {"low": ABOVE_ZERO}),
    ):
        lacking = of.lacking(ours, find(ours), what)
        yield from Question(
            "V13",
            CLAIM,
            "Table 7",
            f"error minus the baseline's{at}, {words}",
            lambda arms, find=find: of.from_baseline(find(arms).index),
            **band,
        ).of(
            ours,
            of.paper("T7"),
            "; ".join(filter(None, (known, lacking))),
            of.against_baseline(ours, chance),
        )
