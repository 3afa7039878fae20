"""Table 9 of Hong et al. 2023 (experiment E5), the negative result: labels finer than ImageNet-1k's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import Claim, unmet
from granularity.stages.verdicts import arms as of

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
RUNS = 3  # behind each arm, as in the paper, on one backbone
WITHIN = ("kmeans_superclass", "kmeans_class", "random_superclass")  # families that cut the target's classes


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge V8 of each condition, network and way of finetuning on the same images."""
    paper = of.paper("T9")
    for ours in of.same_images(tables):
        arms, imagenet = ours.of(*WITHIN), ours.is_from("imagenet", 1000)
        behind = [*arms.to_dict("records"), *([ours.baseline] if ours.baseline else [])]
        yield Claim(
            "V8",
            "Where classes are as fine as the images allow, labels finer than them do not help",
            "Table 9",
            f"{ours.where}: error minus the baseline's, each number of labels within the classes",
            ours.differences(arms),
            low=-0.1,
            untested=unmet(
                (imagenet, "another data set than the paper's: ImageNet-1k, 1000 classes"),
                (ours.baseline is not None, "no baseline"),
                (len(arms) > 0, "no label space within the target's classes"),
                *of.enough(behind, RUNS, 1),
            ),
            reason="the published standard deviation of the baseline; the paper's own arms are all above it",
            published=paper.differences(paper.of(*WITHIN)),
            seeds=int(arms["runs"].sum()),
        )
