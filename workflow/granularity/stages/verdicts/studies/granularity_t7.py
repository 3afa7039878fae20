"""Table 7 of Hong et al. 2023 (experiment E3): human ranks and random IDs again, on another architecture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, BELOW_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
CLAIM = "On another architecture, too, finer human labels help and random IDs do not"


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge V13 of every architecture, in each condition and way of finetuning on the same images."""
    found, paper = of.same_images(tables), of.paper("T7")
    architectures = list(dict.fromkeys(ours.architecture for ours in found if ours.baseline))
    for ours in found:
        papers = ours.is_from("inaturalist", 11) and ours.architecture == "resnet50"
        known = papers or len(architectures) >= 2, f"baselines of {len(architectures)} architectures, needs 2"
        ranks, ids = ours.finer(ours.classes), ours.of("random", "random_instance")
        at = ours.where if not ours.architecture else f"{ours.where}, {ours.architecture}"
        best = ranks.loc[[ranks["mean"].idxmin()]] if len(ranks) else ranks
        theirs = paper.finer(11)
        their_best = theirs.loc[[theirs["mean"].idxmin()]]
        for quantity, what, arms, few, published, band in (
            ("the best human rank", "finer human labels", best, ranks, their_best, {"high": BELOW_ZERO}),
            ("each number of random IDs", "random IDs", ids, ids, paper.of("random"), {"low": ABOVE_ZERO}),
        ):
            too_few = ours.too_few(few, what)
            yield Claim(
                "V13",
                CLAIM,
                "Table 7",
                f"{at}: error minus the baseline's, {quantity}",
                ours.differences(arms),
                untested=unmet(known, (not too_few, too_few)),
                reason=of.SIGN,
                published=paper.differences(published),
                seeds=int(arms["runs"].sum()),
                **band,
            )
