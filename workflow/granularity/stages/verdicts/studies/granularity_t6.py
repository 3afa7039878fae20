"""Table 6 of Hong et al. 2023 (experiment E2): finetuning from epochs 50, 70 and 90 of the pretraining.

At another length, the kept epochs nearest to the same shares of it stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of

if TYPE_CHECKING:
    import pandas as pd

READS = (*of.READS, "pretrain/checkpoints.parquet")
PUBLISHED = (of.PAPER,)
CLAIM = "After 70 of 90 epochs a pretraining is as good as at its end, after 50 it is worse"
SHARES = {50: 50 / 90, 70: 70 / 90}
NEAR = 0.08  # of the length: half of what lies between 50 and 70 epochs, and less


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge V12 of each condition and network, on human ranks (WordNet levels where there are none)."""
    runs = of.joined(tables)
    runs = runs[runs["condition"] == runs["pretrained_on"]]
    runs = runs[runs["space"].isin(_ranks(runs)) & ~runs["head_alone"]]
    lengths = tables["pretrain/checkpoints.parquet"].groupby("run_id")["epoch"].max()
    share = runs["from_epoch"].astype(float) / runs["parent"].map(lengths).astype(float)
    papers = {epoch: of.paper("T6", setting=f"to epoch {epoch},") for epoch in (*SHARES, 90)}
    groups = [*runs.groupby(["condition", "home"], sort=False)]
    for names, part in groups or [(("no such networks",), runs)]:
        ends = part[part["from_epoch"].isna()]
        last = [*of.best(ends, tables)] if len(ends) else [of.nothing()]
        for epoch, fraction in SHARES.items():
            near = part[(share.loc[part.index] - fraction).abs() <= NEAR]
            kept = [*of.best(near, tables)] if len(near) else [of.nothing()]
            yield _judge(", ".join(names), epoch, kept[0], last[0], papers)


def _ranks(runs: pd.DataFrame) -> set[str]:
    """Spaces of human ranks, without the target's own; WordNet levels where there are none."""
    other = runs[runs["space"] != of.BASELINE]
    return max((set(other.loc[other["family"] == family, "space"]) for family in ("manual", "wordnet")), key=len)


def _judge(where: str, epoch: int, kept: of.Arms, last: of.Arms, papers: dict[int, of.Arms]) -> Claim:
    both = kept.table.merge(last.table, on=["space", "family", "granularity"], suffixes=("", "_last"))
    theirs = papers[epoch].table.merge(papers[90].table, on="granularity", suffixes=("", "_last"))
    behind = [*last.table[last.table["space"].isin(both["space"])].to_dict("records"), *both.to_dict("records")]
    full = last.is_from("inaturalist", 11) and last.train_images == 500_000
    as_good = epoch == 70
    ranks = f"no human rank finetuned from epoch {epoch} of 90, or as late, and from the end (from_epoch of a transfer)"
    data = "another data set than the paper's: 500,000 images of iNaturalist 2021, 11 classes"
    return Claim(
        "V12",
        CLAIM,
        "Table 6",
        f"{where}: error from epoch {epoch} of 90, or as late, minus that from the end, each rank",
        list(both["mean"] - both["mean_last"]),
        low=-0.05 if as_good else ABOVE_ZERO,
        high=0.05 if as_good else float("inf"),
        untested=unmet((len(both) > 0, ranks), (full or not as_good, data), *of.enough(behind)),
        reason="the task's own margin, a standard deviation of the published means" if as_good else of.SIGN,
        published=list(theirs["mean"] - theirs["mean_last"]),
        seeds=int(both["runs"].sum()),
    )
