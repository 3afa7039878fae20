"""Table 6 of Hong et al. 2023 (experiment E2): finetuning from epochs 50, 70 and 90 of the pretraining.

At another length, the kept epochs nearest to the same shares of it stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import Arms, Contrast, Question, minus

if TYPE_CHECKING:
    import pandas as pd

READS = (*of.READS, "pretrain/checkpoints.parquet")
PUBLISHED = (of.PAPER,)
CLAIM = "After 70 of 90 epochs a pretraining is as good as at its end, after 50 it is worse"
SHARES = {50: 50 / 90, 70: 70 / 90}
NEAR = 0.08  # of the length: half of what lies between 50 and 70 epochs, and less
OTHER_DATA = "another data set than the paper's: 500,000 images of iNaturalist 2021, 11 classes"


def judge(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Judge V12 of each condition and network, on human ranks (WordNet levels where there are none)."""
    runs = of.joined(tables)
    runs = runs[runs["condition"] == runs["pretrained_on"]]
    runs = runs[runs["space"].isin(_ranks(runs)) & ~runs["head_alone"]]
    lengths = tables["pretrain/checkpoints.parquet"].groupby("run_id")["epoch"].max()
    share = runs["from_epoch"].astype(float) / runs["parent"].map(lengths).astype(float)
    groups = [part for _, part in runs.groupby(["condition", "home"], sort=False)]
    found: list[Claim] = []
    for part in groups or [runs]:
        ends = part[part["from_epoch"].isna()]
        last = [*of.best(ends, tables)] if len(ends) else [of.nothing()]
        for epoch, fraction in SHARES.items():
            near = part[(share.loc[part.index] - fraction).abs() <= NEAR]
            kept = [*of.best(near, tables)] if len(near) else [of.nothing()]
            found += claims(epoch, kept[0], last[0])
    return of.corrected(found)


def paper(epoch: int) -> Arms:
    """The paper's arms finetuned from an epoch, 50, 70 or 90."""
    return of.paper("T6", f"to epoch {epoch},")


def claims(epoch: int, kept: Arms, last: Arms) -> Iterator[Claim]:
    """V12 of epoch 50 or 70, from the arms finetuned from there and from the end: ours, or those of the paper."""

    def ranks(arms: Arms) -> list[Contrast]:
        spaces = [name.partition("/")[2] for name in arms.table.index if name.startswith("kept/")]
        return [minus(f"kept/{space}", f"end/{space}") for space in spaces if arms.has(f"end/{space}")]

    ours, as_good = of.beside(end=last, kept=kept), epoch == 70
    full = last.is_from("inaturalist", 11) and last.train_images == 500_000
    none = f"no human rank finetuned from epoch {epoch} of 90, or as late, and from the end (from_epoch of a transfer)"
    band = {"low": -0.05, "high": 0.05} if as_good else {"low": ABOVE_ZERO}
    yield from Question(
        "V12",
        CLAIM,
        "Table 6",
        f"error from epoch {epoch} of 90, or as late, minus that from the end, ranks",
        ranks,
        reason="the task's own margin, a standard deviation of the published means" if as_good else of.SIGN,
        **band,
    ).of(
        ours,
        of.beside(end=paper(90), kept=paper(epoch)),
        unmet((len(ranks(ours)) > 0, none), (full or not as_good, OTHER_DATA)),
    )


def _ranks(runs: pd.DataFrame) -> set[str]:
    """Spaces of human ranks, without the target's own; WordNet levels where there are none."""
    other = runs[runs["space"] != of.BASELINE]
    return max((set(other.loc[other["family"] == family, "space"]) for family in ("manual", "wordnet")), key=len)
