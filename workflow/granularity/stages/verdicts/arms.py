"""Arms, which studies compare: the errors of networks finetuned after a pretraining, by label space of the pretraining.

Errors are validation errors in percent, differences in percentage points. Our arms and a paper's printed table are
judged by one rule: every comparison is a weighted sum of arms, with an interval that is corrected for the number of
comparisons. The unit of replication is the backbone; of a printed table, which has means and standard deviations, the
run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from granularity.base import extensions
from granularity.claims import published, statistics
from granularity.claims.claim import Claim, unmet

if TYPE_CHECKING:
    import pandas as pd

    from granularity.claims.statistics import Difference

PAPER = "granularity"
READS = ("pretrain/runs.parquet", "finetune/runs.parquet")
BASELINE = "target"  # the space whose labels the target's are
ONE_PASS = "one pass"  # the baseline's networks before they are finetuned
LEAST_RUNS = (
    3  # behind a printed mean with a standard deviation whose number of runs is not printed: there are no fewer
)
SINGLE = 0.1  # points: about the largest standard deviation that the paper prints for a baseline
SIGN = "the paper's statement is a sign; its size depends on data, network and schedule"

Contrast = Mapping[str, float]  # weights of arms, by space


@dataclass(frozen=True)
class Arms:
    """Arms that are compared with one another, of one network and way of finetuning.

    Attributes:
        table: a row per arm, by its space: `family`, `granularity`, `mean`; of a printed table `std` and `n` as well.
        errors: a row per backbone (its pretraining seed), a column per space: the mean over its finetunings. None of a
            printed table.
        where: condition, network and transfer, in words.
        source, classes, train_images: of the images that are finetuned on.
        architecture: of the networks; empty if it does not matter.
    """

    table: pd.DataFrame
    errors: pd.DataFrame | None = None
    where: str = ""
    source: str = ""
    classes: int = 0
    train_images: int = 0
    architecture: str = ""

    def of(self, *families: str) -> pd.DataFrame:
        """The arms of some families, from coarse to fine; without the baseline."""
        own = self.table["family"].isin(families) & ~self.table.index.isin([BASELINE, ONE_PASS])
        return self.table[own].sort_values("granularity")

    def finer(self, classes: float) -> pd.DataFrame:
        """Human ranks of more classes."""
        manual = self.of("manual")
        return manual[manual["granularity"] > classes]

    def has(self, space: str) -> bool:
        return space in self.table.index

    def contrast(self, weights: Contrast) -> Difference:
        """The weighted sum of arms: over backbones that all of them have, or of printed means."""
        spaces, factors = list(weights), list(weights.values())
        if self.errors is not None:
            return statistics.mean_of(self.of_backbones(weights))
        rows = self.table.loc[spaces]
        return statistics.unpaired(factors, rows["mean"], rows["std"], rows["n"])

    def of_backbones(self, weights: Contrast) -> list[float]:
        """The weighted sum on each backbone; of printed means the one that there is."""
        if self.errors is None:
            return [self.contrast(weights).difference]
        return list((self.errors[list(weights)] * list(weights.values())).sum(axis=1, skipna=False).dropna())

    def is_from(self, source: str, classes: int) -> bool:
        return (self.source, self.classes) == (source, classes)


@dataclass(frozen=True)
class Question:
    """What some comparisons of arms have in common, as a claim says it.

    Attributes:
        id, claim, source, quantity, low, high, reason: as of a :class:`~granularity.claims.claim.Claim`.
        contrasts: the comparisons that some arms allow.
    """

    id: str
    claim: str
    source: str
    quantity: str
    contrasts: Callable[[Arms], Sequence[Contrast]]
    low: float = -math.inf
    high: float = math.inf
    reason: str = SIGN
    more: Mapping[str, Any] = field(default_factory=dict)

    def of(self, ours: Arms, theirs: Arms | None, untested: str = "", comparisons: int = 1) -> Iterator[Claim]:
        """Its rows: the average of the comparisons by its interval, and where there are several each of them.

        A claim fails as well where one comparison's own interval, corrected for their number, lies outside the band.

        Args:
            theirs: the paper's arms, for the published values beside ours.
            untested: why the claim cannot be tested, where it cannot.
            comparisons: how many the average stands for where results are corrected (see :func:`corrected`).
        """
        each = [] if untested else list(self.contrasts(ours))
        known = [] if theirs is None else list(self.contrasts(theirs))
        said = {"untested": untested, "reason": self.reason, **self.more}
        words = f"{ours.where}: {self.quantity}"
        shown = {"published": [theirs.contrast(average(known)).difference] if known else []}
        mean = average(each)
        yield Claim(
            self.id,
            self.claim,
            self.source,
            f"{words}, mean of {len(each)}" if len(each) > 1 else words,
            ours.of_backbones(mean) if each else [],
            self.low,
            self.high,
            judged="interval",
            estimate=ours.contrast(mean) if each else None,
            comparisons=comparisons,
            **said,
            **shown,
        )
        found = [ours.contrast(one) for one in each]
        ends = [statistics.interval(*one, max(comparisons, len(each))) for one in found]
        if len(each) < 2 or math.isnan(ends[0][0]):
            return
        outside = sum(high < self.low or low > self.high for low, high in ends)
        said["reason"] = "an average must not hide one that contradicts the claim"
        yield Claim(self.id, self.claim, self.source, f"{words}: how many contradict it", [outside], high=0, **said)
        shown = {"published": [theirs.contrast(one).difference for one in known]}
        values = [one.difference for one in found]
        yield Claim(self.id, self.claim, self.source, f"{words}: each", values, **said, **shown)


def minus(one: str, other: str) -> Contrast:
    return {one: 1.0, other: -1.0}


def average(contrasts: Sequence[Contrast]) -> Contrast:
    """The mean of some contrasts."""
    total: Counter[str] = Counter()
    for one in contrasts:
        for space, weight in one.items():
            total[space] += weight / len(contrasts)
    return dict(total)


def from_baseline(spaces: Iterable[str]) -> list[Contrast]:
    """Each arm minus the baseline."""
    return [minus(space, BASELINE) for space in spaces]


def against_baseline(arms: Arms, chance: bool) -> int:
    """How many arms the report holds against the baseline on the same page: those by chance, or those with a meaning.

    A claim about the baseline is corrected for as many, and so never holds where the report's own interval has zero.
    """
    families = {name: extensions.find("family", name) for name in extensions.names("family")}
    by_chance = [name for name, family in families.items() if getattr(family, "MEANINGLESS", False)]
    drawn = arms.table["family"].isin(by_chance) | (arms.table.index == ONE_PASS)
    return max(1, int((drawn if chance else ~drawn & (arms.table.index != BASELINE)).sum()))


def corrected(claims: Iterable[Claim]) -> list[Claim]:
    """Claims whose intervals hold together with all others of the same id (Bonferroni), over all that is judged."""
    found = list(claims)
    known = [one.estimate is not None and not math.isnan(one.estimate.error) for one in found]
    counts: Counter[str] = Counter()
    for one, has in zip(found, known, strict=True):
        counts[one.id] += one.comparisons if has else 0
    return [
        replace(one, comparisons=counts[one.id], p=min(1.0, statistics.p_value(*one.estimate) * counts[one.id]))
        if has
        else one
        for one, has in zip(found, known, strict=True)
    ]


# ---------------------------------------------------------------- printed tables

INAT = {"source": "inaturalist", "classes": 11, "train_images": 500_000}
IMAGENET = {"source": "imagenet", "classes": 1000, "train_images": 1_281_167, "architecture": "resnet50"}
IMAGENET21K = {"source": "imagenet21k", "classes": 2, "train_images": 12_743_321}
TABLES: dict[str, dict[str, Any]] = {  # what the networks of a table are finetuned on
    "T2": IMAGENET21K,
    "T5": INAT | {"architecture": "resnet34"},
    "T6": INAT | {"architecture": "resnet34"},
    "T7": INAT | {"architecture": "resnet50"},
    "T9": IMAGENET,
    "T10": {},
    "T11": {},
}


def paper(table: str, setting: str = "") -> Arms:
    """The arms of a published table: errors, and 100 minus what it prints as accuracy.

    Args:
        setting: only rows whose setting holds it.
    """
    rows = published.with_baselines(table).rename(columns={"arm": "family", "x": "granularity"})
    rows = rows[rows["setting"].str.contains(setting, regex=False)].copy()
    rows["mean"] = rows["mean"].where(rows["metric"] != "accuracy_percent", 100 - rows["mean"])
    rows["n"] = rows["n"].fillna(LEAST_RUNS).where(rows["std"].notna(), 1)
    names = rows["family"] + "-" + rows["granularity"].map("{:g}".format)
    again = names.groupby(names).cumcount()  # the clusters of another encoder
    names = names.where(again == 0, names + " (" + (again + 1).astype(str) + ")")
    names = names.mask(rows["family"] == "baseline", BASELINE).mask(rows["family"] == ONE_PASS, ONE_PASS)
    return Arms(rows.set_index(names), where=table, **TABLES[table])


# ---------------------------------------------------------------- our own runs


def same_images(tables: dict[str, pd.DataFrame]) -> list[Arms]:
    """Arms finetuned on the images that they were pretrained on, from the end of the pretraining.

    One for each condition, network and transfer. One without arms, if there is none: a study is never without claims.
    """
    runs = joined(tables)
    runs = runs[(runs["condition"] == runs["pretrained_on"]) & runs["from_epoch"].isna()]
    found = list(by_transfer(runs, tables))
    return found or [nothing()]


def nothing() -> Arms:
    """No arm at all, of which every claim is not tested."""
    import pandas as pd

    columns = {"family": "", "granularity": 0.0, "mean": 0.0}
    return Arms(pd.DataFrame([columns]).iloc[:0], pd.DataFrame(), where="no such networks")


def joined(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Finetunings, with `pretrained_on` (the condition), `architecture` and `home` of their networks.

    A network that was not pretrained on the target's labels is taken with one that was: its home, the first of its
    architecture that has none of its label spaces. So the label spaces of an experiment may be those of several.
    """
    parents, runs = tables["pretrain/runs.parquet"], tables["finetune/runs.parquet"]
    known = parents.drop_duplicates("run_id").set_index("run_id")
    runs = runs.assign(
        pretrained_on=runs["parent"].map(known["condition"]), architecture=runs["parent"].map(known["architecture"])
    )
    return runs.assign(home=runs["network"].map(_homes(runs)))


def _homes(runs: pd.DataFrame) -> dict[str, str]:
    """The home of each network."""
    found: dict[str, str] = {}
    taken: dict[str, set[str]] = {}
    groups = [(*key, set(part["space"])) for key, part in runs.groupby(["network", "architecture"], sort=False)]
    for network, kind, spaces in sorted(groups, key=lambda group: BASELINE not in group[2]):
        mates = (one for one, other, _ in groups if one in taken and other == kind and not taken[one] & spaces)
        found[network] = network if BASELINE in spaces else next(mates, network)
        taken.setdefault(found[network], set()).update(spaces)
    return found


def by_transfer(runs: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> Iterator[Arms]:
    """One for each condition, network and transfer of :func:`joined` runs."""
    several = [key for key in ("home", "transfer") if runs[key].nunique() > 1]
    for (condition, *rest), part in runs.groupby(["condition", *several], sort=False):
        yield arms(part, tables, ", ".join([condition, *rest]))


def best(runs: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> Iterator[Arms]:
    """One for each condition, pretraining's condition and network: each arm as the transfer that is best for it."""
    keys = ["condition", *(key for key in ("pretrained_on", "home") if runs[key].nunique() > 1)]
    for names, part in runs.groupby(keys, sort=False):
        mean = part.groupby(["space", "transfer"], sort=False)["val_error"].mean()
        chosen = set(mean.groupby("space").idxmin())
        kept = [pair in chosen for pair in zip(part["space"], part["transfer"], strict=True)]
        yield arms(part[kept], tables, ", ".join(names))


def arms(runs: pd.DataFrame, tables: dict[str, pd.DataFrame], where: str) -> Arms:
    """The arms of some finetunings on the same images."""
    about = tables["samples"].set_index("condition").loc[runs["condition"].iloc[0]]
    parents = tables["pretrain/runs.parquet"]
    once = (parents["space"] == BASELINE) & (parents["condition"] == runs["pretrained_on"].iloc[0])
    once &= parents["network"] == runs["home"].iloc[0]
    errors = runs.groupby(["pretrain_seed", "space"])["val_error"].mean().unstack("space")
    table = runs.drop_duplicates("space").set_index("space")[["family", "granularity"]]
    if once.any():
        errors[ONE_PASS] = parents[once].groupby("pretrain_seed")["val_error"].mean()
        table.loc[ONE_PASS] = [ONE_PASS, int(about["classes"])]
    return Arms(
        table.assign(mean=errors.mean()),
        errors,
        where,
        str(about["source"]),
        int(about["classes"]),
        int(about["train_images"]),
        str(runs["architecture"].iloc[0]),
    )


def beside(**several: Arms) -> Arms:
    """Arms of several ways of training on the same backbones as arms of one; a space is NAME/SPACE then."""
    import pandas as pd

    tables = {name: one.table.rename(index=lambda space, name=name: f"{name}/{space}") for name, one in several.items()}
    known = {name: one.errors for name, one in several.items() if one.errors is not None}
    errors = [part.rename(columns=lambda space, name=name: f"{name}/{space}") for name, part in known.items()]
    first = next(iter(several.values()))
    return replace(first, table=pd.concat(tables.values()), errors=pd.concat(errors, axis=1) if errors else None)


def lacking(arms: Arms, wanted: pd.DataFrame, what: str) -> str:
    """Why arms cannot be held against the baseline, see :func:`granularity.claims.claim.unmet`."""
    return unmet(
        (arms.has(BASELINE), "no baseline: no network pretrained on the target's own labels was finetuned"),
        (len(wanted) > 0, f"no label space of {what}"),
    )


def nearest(one: pd.DataFrame, others: pd.DataFrame, within: float) -> Iterator[tuple[str, str]]:
    """Each arm beside that of the others whose number of classes is nearest, if it is at most `within` times off."""
    for space, granularity in one["granularity"].items():

        def off(other: str, granularity: float = granularity) -> float:
            return abs(math.log(others.at[other, "granularity"] / granularity))

        other = min(others.index, key=off, default=None)
        if other is not None and off(other) <= math.log(within):
            yield space, other


def at_granularity(arms: pd.DataFrame, granularity: float) -> Contrast:
    """The error at a number of classes, between the two nearest arms, on a logarithmic axis; empty beyond the ends."""
    sizes = arms["granularity"]
    below, above = sizes[sizes <= granularity], sizes[sizes >= granularity]
    if below.empty or above.empty:
        return {}
    low, high = below.idxmax(), above.idxmin()
    if sizes[low] == sizes[high]:
        return {low: 1.0}
    share = math.log(granularity / sizes[low]) / math.log(sizes[high] / sizes[low])
    return {low: 1 - share, high: share}


def single_runs(arms: Arms, claims: Iterable[Claim], **band: float) -> Iterator[Claim]:
    """Claims about ImageNet-21k, where the paper and its configuration have one run per arm.

    No interval is to be had then; the difference itself is judged, against a margin that stands for the spread.

    Args:
        band: `low` or `high`, in percentage points.
    """
    single = arms.is_from(*(IMAGENET21K[key] for key in ("source", "classes")))
    for one in claims:
        known = one.estimate is not None and not math.isnan(one.estimate.error)
        reason = "one run of each arm, as in the paper: a margin stands for the spread between runs"
        yield replace(one, judged="mean", reason=reason, **band) if single and not known else one
