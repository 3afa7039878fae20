"""Tables 5 and 7 of Hong et al. 2023 (experiments E1 and E3): finer labels of the images whose target is finetuned on.

Signs and orderings are judged at any scale, sizes on the paper's own data only. Errors are validation errors in
percent, differences in percentage points; the baseline is the same two stages on target labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims.claim import ABOVE_ZERO, BELOW_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import BASELINE, Arms, Contrast, Question, minus

if TYPE_CHECKING:
    import pandas as pd


READS = of.READS
PUBLISHED = (of.PAPER,)
TWICE = 2  # V1: a rank of hardly more classes than the target has (phylum, 13 beside 11) is hardly finer
SAME = 1.05  # V4: numbers of classes whose ratio is smaller count as one
NEAR = 2  # V5: so much may the nearest number of clusters be off
FINE = 200  # V5: the paper's human ranks of more classes
GAIN = 3.0  # V7: points to either side
OTHER_DATA = "another data set than the paper's: 500,000 images of iNaturalist 2021, 11 classes"
OTHER_NETWORK = "another architecture than the paper's: ResNet-34 or ResNet-50"
RANDOM = ("random", "random_instance")


def judge(tables: dict[str, pd.DataFrame]) -> list[Claim]:
    """Judge V1 to V7 of each condition, network and way of finetuning on the same images."""
    return of.corrected(claim for ours in of.same_images(tables) for claim in claims(ours))


def claims(ours: Arms) -> Iterator[Claim]:
    """V1 to V7, of our arms or of a printed table."""
    on_50 = ours.architecture == "resnet50"
    paper, table = of.paper("T7" if on_50 else "T5"), "Table 7" if on_50 else "Table 5"
    for rule in (_fine, _u_shape, _random, _aligned, _human, _even, _gain):
        yield from rule(ours, paper, table)


def _fine(ours: Arms, paper: Arms, table: str) -> Iterator[Claim]:
    ranks = _finer(ours)
    yield from Question(
        "V1",
        "Pretraining on finer human labels lowers the error",
        table,
        f"error minus the baseline's, human ranks of at least {TWICE} times as many classes",
        lambda arms: of.from_baseline(_finer(arms).index),
        high=BELOW_ZERO,
    ).of(ours, paper, of.lacking(ours, ranks, "finer human labels"), of.against_baseline(ours, chance=False))


def _u_shape(ours: Arms, paper: Arms, table: str) -> Iterator[Claim]:
    ranks = ours.finer(ours.classes)
    few = f"{len(ranks)} finer human ranks, needs 2: the baseline is one end, the finest rank the other"
    untested = of.lacking(ours, ranks, "finer human labels") or unmet((len(ranks) >= 2, few))
    for place, end in enumerate(("baseline", "finest rank")):
        yield from Question(
            "V2",
            "Neither the coarsest nor the finest human labels are the best: the error against G is a U",
            table,
            f"error of the best rank in between minus that of the {end}",
            lambda arms, place=place: [minus(_ends(arms)[2], _ends(arms)[place])],
            high=BELOW_ZERO,
            reason=f"{of.SIGN}. Corrected for all ranks in between, of which the best is taken",
        ).of(ours, paper, untested, max(1, len(ranks) - 1))


def _ends(arms: Arms) -> tuple[str, str, str]:
    """The baseline, the finest rank, and the rank in between that has the lowest mean."""
    ranks = arms.finer(arms.classes)
    return BASELINE, ranks.index[-1], ranks["mean"].iloc[:-1].idxmin()


def _random(ours: Arms, paper: Arms, table: str) -> Iterator[Claim]:
    yield from Question(
        "V3",
        "Meaning matters: pretraining on random IDs raises the error",
        table,
        "error minus the baseline's, numbers of random IDs",
        lambda arms: of.from_baseline(arms.of(*RANDOM).index),
        low=ABOVE_ZERO,
    ).of(ours, paper, of.lacking(ours, ours.of(*RANDOM), "random IDs"), of.against_baseline(ours, chance=True))


def _aligned(ours: Arms, paper: Arms, table: str) -> Iterator[Claim]:
    def pairs(arms: Arms) -> list[Contrast]:
        return [minus(*pair) for pair in of.nearest(arms.of("kmeans_superclass"), arms.of("kmeans"), SAME)]

    few = f"both were run with as many classes {len(pairs(ours))} times, 2 are needed"
    yield from Question(
        "V4",
        "Alignment matters: k-means per superclass is better than over the whole set",
        table,
        "error per superclass minus whole set, numbers of classes",
        pairs,
        high=BELOW_ZERO,
    ).of(ours, paper, unmet((len(pairs(ours)) >= 2, few)))


def _human(ours: Arms, paper: Arms, table: str) -> Iterator[Claim]:
    def pairs(arms: Arms) -> list[Contrast]:
        ranks = arms.finer(FINE if _the_papers(arms) else arms.classes)
        families = ("kmeans_superclass", "kmeans")
        return [minus(*pair) for family in families for pair in of.nearest(ranks, arms.of(family), NEAR)]

    none = f"no human rank finer than the target with k-means clusters of a G at most {NEAR} times off"
    yield from Question(
        "V5",
        "Human labels are better than clusters of CLIP embeddings, where they are fine",
        table,
        "error of a human rank minus that of the clusters of the nearest G, each kind of k-means",
        pairs,
        high=BELOW_ZERO,
        reason=f"{of.SIGN}. Fine is more than {FINE} classes on the paper's data, and finer than the target on others",
    ).of(ours, paper, unmet((len(pairs(ours)) > 0, none)))


def _even(ours: Arms, paper: Arms, table: str) -> Iterator[Claim]:
    def pairs(arms: Arms) -> list[Contrast]:
        uniform = arms.of("kmeans_superclass")
        found = {
            space: of.at_granularity(uniform, size) for space, size in arms.of("rebalanced")["granularity"].items()
        }
        return [{space: 1.0} | {name: -weight for name, weight in at.items()} for space, at in found.items() if at]

    none = "no rebalanced clusters between two numbers of k-means clusters per superclass"
    yield from Question(
        "V6",
        "That clusters are uneven is not the reason: rebalanced ones are as good",
        table,
        "error of rebalanced clusters minus that of k-means per superclass, interpolated at the same G",
        pairs,
        low=-0.1,
        high=0.1,
        reason="the task's own margin, twice the published standard deviation",
    ).of(ours, paper, unmet((_the_papers(ours), OTHER_DATA), (len(pairs(ours)) > 0, none)))


def _gain(ours: Arms, paper: Arms, table: str) -> Iterator[Claim]:
    def gain(arms: Arms) -> list[float]:
        ranks = arms.finer(arms.classes)
        base = arms.table["mean"].get(BASELINE)
        return [100 * (1 - ranks["mean"].min() / base)] if len(ranks) and base else []

    (known,) = gain(paper)
    yield Claim(
        "V7",
        f"The best human labels lower the error by {known:.2f} %"
        if _the_papers(ours)
        else "The best human labels lower the error by as much as in the paper",
        table,
        f"{ours.where}: relative gain over the baseline, percent",
        gain(ours),
        known - GAIN,
        known + GAIN,
        untested=unmet((_the_papers(ours), OTHER_DATA), (ours.architecture in ("resnet34", "resnet50"), OTHER_NETWORK)),
        reason="two standard deviations of the published difference, 1.3 points on ResNet-34 and 1.0 on ResNet-50, "
        "rounded up",
        published=[known],
    )


def _the_papers(arms: Arms) -> bool:
    return arms.is_from("inaturalist", 11) and arms.train_images == 500_000


def _finer(arms: Arms) -> pd.DataFrame:
    return arms.finer(TWICE * arms.classes - 1)
