"""Table 9 of Hong et al. 2023 (experiment E5), the negative result: labels finer than ImageNet-1k's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import Arms, Question

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
WITHIN = ("kmeans_superclass", "kmeans_class", "random_superclass")  # families that cut the target's classes
WHOLE = 1_000_000  # training images, at least: of a part of ImageNet-1k there are fewer per class than the paper has


def judge(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Judge V8 of each condition, network and way of finetuning on the same images."""
    return of.corrected(claim for ours in of.same_images(tables) for claim in claims(ours))


def claims(ours: Arms) -> Iterator[Claim]:
    """V8, of our arms or of a printed table."""
    imagenet = ours.is_from("imagenet", 1000) and ours.train_images >= WHOLE
    yield from Question(
        "V8",
        "Where classes are as fine as the images allow, labels finer than them do not help",
        "Table 9",
        "error minus the baseline's, numbers of labels within the classes",
        lambda arms: of.from_baseline(arms.of(*WITHIN).index),
        low=-0.1,
        reason="the published standard deviation of the baseline; the paper's own arms are all above it",
    ).of(
        ours,
        of.paper("T9"),
        unmet((imagenet, "another data set than the paper's: all of ImageNet-1k, 1000 classes"))
        or of.lacking(ours, ours.of(*WITHIN), "labels within the target's classes"),
    )
