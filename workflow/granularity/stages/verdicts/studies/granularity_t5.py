"""Table 5 of Hong et al. 2023: pretraining on finer labels of the images whose target is finetuned on.

Signs and orderings are judged at any scale, the size of the gain on the paper's own data only. Errors are validation
errors in percent, differences in percentage points; the baseline is the same two stages on target labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from granularity.claims import published
from granularity.claims.claim import ABOVE_ZERO, BELOW_ZERO, Claim, unmet

if TYPE_CHECKING:
    import pandas as pd

READS = ("pretrain/runs.parquet", "finetune/runs.parquet")
PUBLISHED = ("granularity",)
BASELINE = "target"  # the space whose labels the target's are
RUNS, BACKBONES = 6, 2  # at least, behind each arm, as in the paper
SAME = 0.05  # relative difference of two numbers of classes that count as one
TABLE = "Table 5"
SIGN = "the paper's statement is a sign; its size depends on data, network and schedule"


@dataclass(frozen=True)
class Arms:
    """The arms of one condition: columns family, granularity, mean (error), runs, backbones; and their baseline."""

    table: pd.DataFrame
    baseline: float

    def of(self, family: str) -> pd.DataFrame:
        return self.table[self.table["family"] == family].sort_values("granularity")

    def differences(self, arms: pd.DataFrame) -> list[float]:
        """Mean errors of arms minus the baseline's."""
        return list(arms["mean"] - self.baseline)

    def pairs(self) -> pd.DataFrame:
        """k-means per superclass (columns as above) beside k-means over the whole set (`..._whole`).

        Where both were run with as many classes: an empty cluster more or less is no other granularity.
        """
        both = self.of("kmeans_superclass").merge(self.of("kmeans"), how="cross", suffixes=("", "_whole"))
        return both[(both["granularity"] / both["granularity_whole"] - 1).abs() <= SAME]


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge V1, V3, V4 and V7 of each condition, network and way of finetuning on the same images."""
    paper, runs = _paper(), _same_images(tables)
    several = [key for key in ("network", "transfer") if runs[key].nunique() > 1]
    abouts = tables["samples"].set_index("condition").to_dict("index")
    for (condition, *rest), part in runs.groupby(["condition", *several], sort=False):
        if (part["space"] == BASELINE).any():
            about = {**abouts[condition], "where": ", ".join([condition, *rest])}
            ours, base = _ours(part)
            yield from _fine(about, ours, base, paper, part)
            yield from _random(about, ours, base, paper)
            yield from _aligned(about, ours, paper)
            yield from _gain(about, ours, paper)


def _same_images(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Finetunings on the images that their network was pretrained on."""
    runs, parents = tables["finetune/runs.parquet"], tables["pretrain/runs.parquet"]
    pretrained = set(zip(parents["condition"], parents["run_id"], strict=True))
    return runs[[pair in pretrained for pair in zip(runs["condition"], runs["parent"], strict=True)]]


def _fine(about: dict, ours: Arms, base: pd.Series, paper: Arms, runs: pd.DataFrame) -> Iterator[Claim]:
    claim, where = "Pretraining on finer human labels lowers the error", about["where"]
    arms, theirs = _finer(ours, about["classes"]), _finer(paper, 13)
    untested = _too_few(arms, base, "finer human labels")
    quantity = f"{where}: error minus the baseline's, each finer rank"
    known = paper.differences(theirs[theirs["granularity"].isin([273, 1103, 4884])])
    yield Claim(
        "V1",
        claim,
        TABLE,
        quantity,
        ours.differences(arms),
        high=BELOW_ZERO,
        untested=untested,
        reason=SIGN,
        published=known,
        seeds=int(arms["runs"].sum()),
    )
    best, high = (arms.loc[arms["mean"].idxmin()] if len(arms) else None), None
    if not untested:
        high = _upper_end(*(runs.loc[runs["space"] == space, "val_error"] for space in (best["space"], BASELINE)))
    yield Claim(
        "V1",
        claim,
        TABLE,
        f"{where}: the best rank's difference, upper end of its 95 % interval (Welch, over runs)",
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


def _random(about: dict, ours: Arms, base: pd.Series, paper: Arms) -> Iterator[Claim]:
    arms = ours.of("random")
    yield Claim(
        "V3",
        "Meaning matters: pretraining on random IDs raises the error",
        TABLE,
        f"{about['where']}: error minus the baseline's, each number of IDs",
        ours.differences(arms),
        low=ABOVE_ZERO,
        untested=_too_few(arms, base, "random IDs"),
        reason=SIGN,
        published=paper.differences(paper.of("random")),
        seeds=int(arms["runs"].sum()),
    )


def _aligned(about: dict, ours: Arms, paper: Arms) -> Iterator[Claim]:
    claim, where = "Alignment matters: k-means per superclass is better than over the whole set", about["where"]
    pairs, theirs = ours.pairs(), paper.pairs()
    behind = ours.table[ours.table["space"].isin([*pairs["space"], *pairs["space_whole"]])]
    few = f"both were run with as many classes {len(pairs)} times, 2 are needed"
    untested = unmet((len(pairs) >= 2, few), *_enough(behind.to_dict("records")))
    ahead, published_ahead = (list(one["mean"] - one["mean_whole"]) for one in (pairs, theirs))
    shared = {"untested": untested, "seeds": int(behind["runs"].sum())}
    yield Claim(
        "V4",
        claim,
        TABLE,
        f"{where}: numbers of classes at which it is the other way round",
        [float(sum(difference >= 0 for difference in ahead))],
        high=1,
        reason="one reversal is within the noise of a mean over few runs",
        published=[float(sum(difference >= 0 for difference in published_ahead))],
        **shared,
    )
    quantity = f"{where}: per superclass minus whole set, each number of classes"
    yield Claim("V4", claim, TABLE, quantity, ahead, published=published_ahead, **shared)


def _gain(about: dict, ours: Arms, paper: Arms) -> Iterator[Claim]:
    def gain(arms: Arms, classes: int) -> list[float]:
        finer = _finer(arms, classes)["mean"]
        return [100 * (1 - finer.min() / arms.baseline)] if len(finer) and arms.baseline else []

    same = about["source"] == "inaturalist" and about["classes"] == 11 and about["train_images"] == 500_000
    headline = published.number(PUBLISHED[0], metric="relative_gain_percent")
    yield Claim(
        "V7",
        f"The best human labels lower the error by {headline} %",
        TABLE,
        f"{about['where']}: relative gain over the baseline, percent",
        gain(ours, about["classes"]),
        5.76,
        11.76,
        untested=unmet((same, "another data set than the paper's: 500,000 images of iNaturalist 2021, 11 classes")),
        reason="two standard deviations of the published difference to each side, 1.3 points each, rounded up",
        published=gain(paper, 11),
    )


def _ours(runs: pd.DataFrame) -> tuple[Arms, pd.Series]:
    table = runs.groupby(["space", "family", "granularity"], sort=False).agg(
        mean=("val_error", "mean"), runs=("val_error", "size"), backbones=("pretrain_seed", "nunique")
    )
    table = table.reset_index()
    base = table[table["space"] == BASELINE].iloc[0]
    return Arms(table[table["space"] != BASELINE], float(base["mean"])), base


def _paper() -> Arms:
    rows = published.rows(PUBLISHED[0], "T5").rename(columns={"arm": "family", "x": "granularity"})
    base = rows["family"] == "baseline"
    return Arms(rows[~base], rows.loc[base, "mean"].item())


def _finer(arms: Arms, classes: int) -> pd.DataFrame:
    manual = arms.of("manual")
    return manual[manual["granularity"] > classes]


def _too_few(arms: pd.DataFrame, base: pd.Series, what: str) -> str:
    return unmet((len(arms) > 0, f"no label space of {what}"), *_enough([*arms.to_dict("records"), base.to_dict()]))


def _enough(arms: list[dict]) -> Iterator[tuple[bool, str]]:
    for arm in arms:
        words = f"{arm['space']}: {arm['runs']} runs on {arm['backbones']} backbones, needs {RUNS} on {BACKBONES}"
        yield arm["runs"] >= RUNS and arm["backbones"] >= BACKBONES, words
