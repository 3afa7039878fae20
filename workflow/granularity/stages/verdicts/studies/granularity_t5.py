"""Table 5 of Hong et al. 2023 (experiment E1): pretraining on finer labels of the images whose target is finetuned on.

Signs, orderings and what is counted in standard deviations are judged at any scale, sizes on the paper's own data only.
Errors are validation errors in percent, differences in percentage points; the baseline is the same two stages on target
labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims import published
from granularity.claims.claim import ABOVE_ZERO, BELOW_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import PAPER, SIGN, Arms

if TYPE_CHECKING:
    import pandas as pd


READS = of.READS
PUBLISHED = (PAPER,)
SAME = 1.05  # numbers of classes whose ratio is smaller count as one
NEAR = 2  # V5: so much may the nearest number of clusters be off
MATCHED = 1.5  # V6: published numbers of rebalanced clusters have none nearer
FINE = 200  # V5: the paper's human ranks of more classes
TABLE = "Table 5"
OTHER_DATA = "another data set than the paper's: 500,000 images of iNaturalist 2021, 11 classes"


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge V1 to V7 of each condition, network and way of finetuning on the same images."""
    paper = of.paper("T5")
    for ours in of.same_images(tables):
        yield from _fine(ours, paper)
        yield from _u_shape(ours, paper)
        yield from _random(ours, paper)
        yield from _aligned(ours, paper)
        yield from _human(ours, paper)
        yield from _even(ours, paper)
        yield from _gain(ours, paper)


def _fine(ours: Arms, paper: Arms) -> Iterator[Claim]:
    claim, arms, theirs = "Pretraining on finer human labels lowers the error", _finer(ours), paper.finer(13)
    untested = ours.too_few(arms, "finer human labels")
    yield Claim(
        "V1",
        claim,
        TABLE,
        f"{ours.where}: error minus the baseline's, each finer rank",
        ours.differences(arms),
        high=BELOW_ZERO,
        untested=untested,
        reason=SIGN,
        published=paper.differences(theirs[theirs["granularity"].isin([273, 1103, 4884])]),
        seeds=int(arms["runs"].sum()),
    )
    best, high = (arms.loc[arms["mean"].idxmin()] if len(arms) else None), None
    if not untested:
        high = _upper_end(*(ours.errors[space] for space in (best["space"], of.BASELINE)))
    yield Claim(
        "V1",
        claim,
        TABLE,
        f"{ours.where}: the best rank's difference, upper end of its 95 % interval (Welch, over runs)",
        [] if high is None else [high],
        high=BELOW_ZERO,
        untested=untested or unmet((high is not None, "no spread between runs")),
        reason="a difference that an interval over runs cannot tell from none is no gain",
        seeds=0 if best is None else int(best["runs"]),
    )


def _upper_end(arm: pd.Series, baseline: pd.Series) -> float | None:
    """Upper end of the 95 % interval of the difference of two means (Welch); None where there is no spread."""
    from scipy import stats

    if arm.nunique() == baseline.nunique() == 1:
        return None
    return float(stats.ttest_ind(arm, baseline, equal_var=False).confidence_interval(0.95).high)


def _u_shape(ours: Arms, paper: Arms) -> Iterator[Claim]:
    arms = _finer(ours)
    few = f"{len(arms)} finer human ranks, needs 2: the baseline is one end, the finest rank the other"
    untested = ours.too_few(arms, "finer human labels") or unmet((len(arms) >= 2, few))
    theirs = _ends(paper, paper.of("manual"))
    for end, found, known in zip(("coarsest", "finest"), _ends(ours, arms), theirs, strict=True):
        yield Claim(
            "V2",
            "Neither the coarsest nor the finest human labels are the best: the error against G is a U",
            TABLE,
            f"{ours.where}: error of the {end} minus the best's, in pooled standard deviations of runs",
            found,
            low=2,
            untested=untested,
            reason="the task's own margin. Where the finest fails alone, there is a left arm only: so in this table",
            published=known,
            seeds=int(arms["runs"].sum()),
        )


def _ends(arms: Arms, ranks: pd.DataFrame) -> tuple[list[float], list[float]]:
    """How far the baseline and the finest rank are above the best of them all, in standard deviations."""
    if arms.baseline is None or ranks.empty:
        return [], []
    every = [arms.baseline, *ranks.to_dict("records")]
    best = min(every, key=lambda arm: arm["mean"])
    return tuple([0.0 if end is best else of.in_stds(end, best)] for end in (every[0], every[-1]))


def _random(ours: Arms, paper: Arms) -> Iterator[Claim]:
    arms = ours.of("random", "random_instance")
    yield Claim(
        "V3",
        "Meaning matters: pretraining on random IDs raises the error",
        TABLE,
        f"{ours.where}: error minus the baseline's, each number of IDs",
        ours.differences(arms),
        low=ABOVE_ZERO,
        untested=ours.too_few(arms, "random IDs"),
        reason=SIGN,
        published=paper.differences(paper.of("random")),
        seeds=int(arms["runs"].sum()),
    )


def _aligned(ours: Arms, paper: Arms) -> Iterator[Claim]:
    claim = "Alignment matters: k-means per superclass is better than over the whole set"
    pairs, theirs = (list(of.nearest(one.of("kmeans_superclass"), one.of("kmeans"), SAME)) for one in (ours, paper))
    behind = _behind(pairs)
    few = f"both were run with as many classes {len(pairs)} times, 2 are needed"
    untested = unmet((len(pairs) >= 2, few), *of.enough(behind))
    ahead, published_ahead = _differences(pairs), _differences(theirs)
    shared = {"untested": untested, "seeds": sum(arm["runs"] for arm in behind)}
    yield Claim(
        "V4",
        claim,
        TABLE,
        f"{ours.where}: numbers of classes at which it is the other way round",
        [float(sum(difference >= 0 for difference in ahead))],
        high=1,
        reason="one reversal is within the noise of a mean over few runs",
        published=[float(sum(difference >= 0 for difference in published_ahead))],
        **shared,
    )
    quantity = f"{ours.where}: per superclass minus whole set, each number of classes"
    yield Claim("V4", claim, TABLE, quantity, ahead, published=published_ahead, **shared)


def _human(ours: Arms, paper: Arms) -> Iterator[Claim]:
    pairs = _with_clusters(_finer(ours) if not _the_papers(ours) else ours.finer(FINE), ours)
    theirs = _with_clusters(paper.finer(FINE), paper)
    none = f"no human rank finer than the target with k-means clusters of a G at most {NEAR} times off"
    yield Claim(
        "V5",
        "Human labels are better than clusters of CLIP embeddings, where they are fine",
        TABLE,
        f"{ours.where}: human rank minus the clusters of the nearest G, each kind of k-means",
        _differences(pairs),
        high=BELOW_ZERO,
        untested=unmet((len(pairs) > 0, none), *of.enough(_behind(pairs))),
        reason=f"{SIGN}. Fine is more than {FINE} classes on the paper's data, and finer than the target on others",
        published=_differences(theirs),
        seeds=sum(arm["runs"] for arm in _behind(pairs)),
    )


def _even(ours: Arms, paper: Arms) -> Iterator[Claim]:
    pairs, theirs = (
        list(of.nearest(one.of("rebalanced"), one.of("kmeans_superclass"), MATCHED)) for one in (ours, paper)
    )
    none = f"no rebalanced clusters with k-means per superclass of a G at most {MATCHED} times off"
    yield Claim(
        "V6",
        "That clusters are uneven is not the reason: rebalanced ones are as good",
        TABLE,
        f"{ours.where}: rebalanced minus k-means per superclass of the nearest G, without its sign",
        [abs(difference) for difference in _differences(pairs)],
        high=0.1,
        untested=unmet((_the_papers(ours), OTHER_DATA), (len(pairs) > 0, none), *of.enough(_behind(pairs))),
        reason="the task's own margin, twice the published standard deviation",
        published=[abs(difference) for difference in _differences(theirs)],
        seeds=sum(arm["runs"] for arm in _behind(pairs)),
    )


def _gain(ours: Arms, paper: Arms) -> Iterator[Claim]:
    def gain(arms: Arms, ranks: pd.DataFrame) -> list[float]:
        usable = len(ranks) and arms.baseline and arms.baseline["mean"]
        return [100 * (1 - ranks["mean"].min() / arms.baseline["mean"])] if usable else []

    headline = published.number(PAPER, metric="relative_gain_percent")
    yield Claim(
        "V7",
        f"The best human labels lower the error by {headline} %",
        TABLE,
        f"{ours.where}: relative gain over the baseline, percent",
        gain(ours, _finer(ours)),
        5.76,
        11.76,
        untested=unmet((_the_papers(ours), OTHER_DATA)),
        reason="two standard deviations of the published difference to each side, 1.3 points each, rounded up",
        published=gain(paper, paper.finer(11)),
    )


def _the_papers(ours: Arms) -> bool:
    return ours.is_from("inaturalist", 11) and ours.train_images == 500_000


def _finer(ours: Arms) -> pd.DataFrame:
    return ours.finer(ours.classes)


def _with_clusters(ranks: pd.DataFrame, arms: Arms) -> list[tuple[dict, dict]]:
    return [pair for family in ("kmeans_superclass", "kmeans") for pair in of.nearest(ranks, arms.of(family), NEAR)]


def _differences(pairs: list[tuple[dict, dict]]) -> list[float]:
    return [one["mean"] - other["mean"] for one, other in pairs]


def _behind(pairs: list[tuple[dict, dict]]) -> list[dict]:
    """The arms of some pairs, each once."""
    return list({arm["space"]: arm for pair in pairs for arm in pair}.values())
