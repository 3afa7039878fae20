"""Arms that studies compare (docs/studies.md): errors in percent after a pretraining, by its label space.

Our arms and a paper's printed table are judged by the same rule: every comparison is a weighted sum of arms, with an
interval corrected for the number of comparisons. The unit of replication is the backbone; for a printed table the run.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from granularity.base import extensions
from granularity.claims import published, statistics
from granularity.claims.claim import Claim, unmet
from granularity.claims.statistics import Difference

BASELINE = "target"  # the space with the target's labels
ONE_PASS = "one pass"  # the baseline's networks before finetuning
SAME = 1.05  # numbers of classes count as equal if their ratio is smaller
LEAST_RUNS = 3  # assumed for a printed mean with a standard deviation but without a number of runs
SIGN = "the paper's statement is a sign; its size depends on data, network and schedule"
ONE_RUN = "one run of each arm, as in the paper: a margin stands for the spread between runs"

COLUMNS = ("condition", "run_id", "parent", "network", "architecture", "space", "family", "transfer", "head_alone")
COLUMNS += ("from_epoch", "epoch")
Contrast = Mapping[str, float]  # weights of arms, by space
Frame = Any  # a pandas.DataFrame: pandas is slow to import
Tables = dict[str, Frame]


@dataclass(frozen=True)
class Arms:
    """Arms that are compared with one another, for one network and way of finetuning."""

    table: Frame  # by space: `family`, `granularity`, `mean`; for a printed table also `std` and `n`
    # A row per backbone (its pretraining seed), a column per space: the mean over finetunings. None: a printed table.
    errors: Frame | None = None
    where: str = ""  # condition, network and transfer, in words
    source: str = ""  # of the images finetuned on, like the next two
    classes: int = 0
    train_images: int = 0
    architecture: str = ""  # of the networks; empty: does not matter

    def of(self, *families: str) -> Frame:
        """Return the arms of some families, from coarse to fine, without the baseline."""
        mask = self.table["family"].isin(families) & ~self.table.index.isin([BASELINE, ONE_PASS])
        return self.table[mask].sort_values("granularity")

    def finer(self, classes: float | None = None) -> Frame:
        """Return human ranks with more than `classes` classes (default: those of the target)."""
        manual = self.of("manual")
        return manual[manual["granularity"] > (self.classes if classes is None else classes)]

    def has(self, space: str) -> bool:
        return space in self.table.index

    def contrast(self, weights: Contrast) -> Difference:
        """Return the weighted sum of arms: over backbones that all of them have, or of printed means."""
        if self.errors is not None:
            return statistics.mean_of(self.of_backbones(weights))
        rows = self.table.loc[list(weights)]
        return statistics.unpaired(list(weights.values()), rows["mean"], rows["std"], rows["n"])

    def of_backbones(self, weights: Contrast) -> list[float]:
        """Return the weighted sum on each backbone; for printed means, the only one."""
        if self.errors is None:
            return [self.contrast(weights).difference]
        return list((self.errors[list(weights)] * list(weights.values())).sum(axis=1, skipna=False).dropna())

    def is_from(self, source: str, classes: int) -> bool:
        return (self.source, self.classes) == (source, classes)


def ask(
    words: Mapping[str, Any],
    contrasts: Callable[[Arms], Sequence[Contrast]],
    ours: Arms,
    theirs: Arms,
    untested: str = "",
    comparisons: int = 1,
) -> Iterator[Claim]:
    """Yield the rows of a claim: the average of the comparisons with its interval, and, if there are several, each one.

    A claim also fails if one comparison's own interval, corrected for their number, lies outside the band.

    Args:
        words: fields of the :class:`~granularity.claims.claim.Claim`; and `single`, the band if arms of ImageNet-21k
            have one run each, as in the paper, and so no interval: then the difference itself is judged.
        contrasts: returns the comparisons that arms allow; the paper's give the published values beside ours.
        untested: why it cannot be tested with ours, see :func:`~granularity.claims.claim.unmet`.
        comparisons: how many comparisons the average counts as when results are :func:`corrected`.
    """
    words = {"low": -math.inf, "high": math.inf, "reason": SIGN, "single": {}} | words
    cases = [] if untested else list(contrasts(ours))
    paper_cases, mean = list(contrasts(theirs)), average(cases)
    head = {key: words.pop(key) for key in ("id", "claim", "source")} | {"untested": untested}
    about, single = f"{ours.where}: {words.pop('quantity')}", words.pop("single")
    estimate = ours.contrast(mean) if cases else None
    judged = {"judged": "interval", **words}
    if single and ours.is_from("imagenet21k", 2) and (estimate is None or math.isnan(estimate.error)):
        judged |= {"judged": "mean", "reason": ONE_RUN, **single}
    yield Claim(
        **head,
        quantity=f"{about}, mean of {len(cases)}" if len(cases) > 1 else about,
        values=ours.of_backbones(mean) if cases else [],
        estimate=estimate,
        comparisons=comparisons,
        published=[theirs.contrast(average(paper_cases)).difference] if paper_cases else [],
        **judged,
    )
    differences = [ours.contrast(case) for case in cases]
    if len(cases) < 2 or math.isnan(differences[0].error):
        return

    def outside(count: int) -> int:
        ends = [statistics.interval(*case, max(count, len(cases))) for case in differences]
        return sum(high < words["low"] or low > words["high"] for low, high in ends)

    claim = partial(Claim, **head, reason="an average must not hide a case that contradicts the claim")
    count = claim(quantity=f"{about}: how many contradict it", values=[outside(comparisons)], high=0)
    yield replace(count, recount=outside)
    published = [theirs.contrast(case).difference for case in paper_cases]
    yield claim(quantity=f"{about}: each", values=[case.difference for case in differences], published=published)


def minus(one: str, other: str) -> Contrast:
    return {one: 1.0, other: -1.0}


def average(contrasts: Sequence[Contrast]) -> Contrast:
    """Return the mean of some contrasts."""
    total: Counter[str] = Counter()
    for contrast in contrasts:
        for space, weight in contrast.items():
            total[space] += weight / len(contrasts)
    return dict(total)


def from_baseline(arms: Frame) -> list[Contrast]:
    """Return each arm minus the baseline."""
    return [minus(space, BASELINE) for space in arms.index]


def without(arms: Arms, wanted: Frame, what: str) -> str:
    """Return why arms cannot be compared with the baseline, see :func:`granularity.claims.claim.unmet`."""
    return unmet(
        (arms.has(BASELINE), "no baseline: no network pretrained on the target was finetuned"),
        (len(wanted) > 0, f"no label space of {what}"),
    )


def against_baseline(arms: Arms, chance: bool) -> int:
    """Return how many arms the report compares with the baseline; claims about it are corrected for as many."""
    families = {name: extensions.find("family", name) for name in extensions.names("family")}
    by_chance = [name for name, family in families.items() if getattr(family, "MEANINGLESS", False)]
    drawn = arms.table["family"].isin(by_chance) | (arms.table.index == ONE_PASS)
    return max(1, int((drawn if chance else ~drawn & (arms.table.index != BASELINE)).sum()))


def corrected(claims: Iterable[Claim]) -> list[Claim]:
    """Correct intervals, and counts of intervals, jointly with all others of the same id (Bonferroni)."""
    all_claims = [replace(claim, estimate=claim.estimate or _of_values(claim)) for claim in claims]
    flags = [claim.estimate is not None and not math.isnan(claim.estimate.error) for claim in all_claims]
    counts: Counter[str] = Counter()
    for claim, has in zip(all_claims, flags, strict=True):
        counts[claim.id] += claim.comparisons if has else 0

    def of_all(claim: Claim) -> Claim:
        p = min(1.0, statistics.p_value(*claim.estimate) * counts[claim.id])
        return replace(claim, comparisons=counts[claim.id], p=p)

    def recounted(claim: Claim) -> Claim:
        return replace(claim, values=[claim.recount(counts[claim.id])]) if claim.recount else claim

    return [of_all(claim) if has else recounted(claim) for claim, has in zip(all_claims, flags, strict=True)]


def _of_values(claim: Claim) -> statistics.Difference | None:
    """Return the mean of a claim's paired differences, if it is judged by their interval."""
    judged = claim.judged == "interval" and len(claim.values) and not claim.untested
    return statistics.mean_of(claim.values) if judged else None


# ---------------------------------------------------------------- printed tables

INAT = {"source": "inaturalist", "classes": 11, "train_images": 500_000}
TABLES: dict[str, dict[str, Any]] = {  # what the networks of a table are finetuned on
    "T2": {"source": "imagenet21k", "classes": 2, "train_images": 12_743_321},
    "T5": INAT | {"architecture": "resnet34"},
    "T6": INAT | {"architecture": "resnet34"},
    "T7": INAT | {"architecture": "resnet50"},
    "T9": {"source": "imagenet", "classes": 1000, "train_images": 1_281_167, "architecture": "resnet50"},
}


def paper(table: str, setting: str = "") -> Arms:
    """Return the arms of a published table whose setting contains `setting`: errors, or 100 minus accuracies."""
    rows = published.with_baselines(table).rename(columns={"arm": "family", "x": "granularity"})
    rows = rows[rows["setting"].str.contains(setting, regex=False)].copy()
    rows["mean"] = rows["mean"].where(rows["metric"] != "accuracy_percent", 100 - rows["mean"])
    rows["n"] = rows["n"].fillna(LEAST_RUNS).where(rows["std"].notna(), 1)
    names = rows["family"] + "-" + rows["granularity"].map("{:g}".format)
    again = names.groupby(names).cumcount()  # the clusters of another encoder
    names = names.where(again == 0, names + " (" + (again + 1).astype(str) + ")")
    names = names.mask(rows["family"] == "baseline", BASELINE).mask(rows["family"] == ONE_PASS, ONE_PASS)
    return Arms(rows.set_index(names), where=table, **TABLES.get(table, {}))


# ---------------------------------------------------------------- our own runs


def joined(tables: Tables, elsewhere: bool = False) -> Frame:
    """Return finetunings on the same images (or others) with their networks' `pretrained_on`, `architecture`, `home`.

    A network without a baseline of its own is grouped with one that has a baseline: its home, the first network of its
    architecture that shares none of its label spaces. So one comparison can use the label spaces of several networks.
    """
    parents, runs = tables["pretrain/runs.parquet"], tables["finetune/runs.parquet"]
    by_run = parents.drop_duplicates("run_id").set_index("run_id")
    runs = runs.assign(
        pretrained_on=runs["parent"].map(by_run["condition"]), architecture=runs["parent"].map(by_run["architecture"])
    )
    runs = runs.assign(home=runs["network"].map(_homes(runs)))
    transferred = runs["condition"] != runs["pretrained_on"]
    return runs[transferred & runs["pretrained_on"].notna() if elsewhere else ~transferred]


def _homes(runs: Frame) -> dict[str, str]:
    homes: dict[str, str] = {}
    taken: dict[str, set[str]] = {}
    groups = [(*key, set(part["space"])) for key, part in runs.groupby(["network", "architecture"], sort=False)]
    for network, kind, spaces in sorted(groups, key=lambda group: BASELINE not in group[2]):
        mates = (mate for mate, model, _ in groups if mate in taken and model == kind and not taken[mate] & spaces)
        homes[network] = network if BASELINE in spaces else next(mates, network)
        taken.setdefault(homes[network], set()).update(spaces)
    return homes


def by_transfer(runs: Frame, tables: Tables) -> Iterator[Arms]:
    """Yield the arms of each condition, network and transfer of :func:`joined` runs."""
    for names, part in runs.groupby(_varied(runs, "home", "transfer"), sort=False):
        yield arms(part, tables, ", ".join(names))


def best(runs: Frame, tables: Tables) -> Iterator[Arms]:
    """Yield the arms of each condition, pretraining condition and network, each arm with its best transfer."""
    for names, part in runs.groupby(_varied(runs, "pretrained_on", "home"), sort=False):
        mean = part.groupby(["space", "transfer"], sort=False)["val_error"].mean()
        chosen = set(mean.groupby("space").idxmin())
        kept = [pair in chosen for pair in zip(part["space"], part["transfer"], strict=True)]
        yield arms(part[kept], tables, ", ".join(names))


def _varied(runs: Frame, *keys: str) -> list[str]:
    return ["condition", *(key for key in keys if runs[key].nunique() > 1)]


def same_images(tables: Tables, split: Callable[..., Iterator[Arms]] = by_transfer) -> list[Arms]:
    """Return arms finetuned on the same images from the end of pretraining; without any, one empty entry for claims."""
    runs = joined(tables)
    return [*split(runs[runs["from_epoch"].isna()], tables)] or [nothing()]


def nothing() -> Arms:
    """Return an empty set of arms, for which no claim is tested."""
    import pandas as pd

    columns = {"family": "", "granularity": 0.0, "mean": 0.0}
    return Arms(pd.DataFrame([columns]).iloc[:0], pd.DataFrame(), where="no such networks")


def arms(runs: Frame, tables: Tables, where: str) -> Arms:
    """Return the arms of some finetunings on the same images."""
    about = tables["samples"].set_index("condition").loc[runs["condition"].iloc[0]]
    parents = tables["pretrain/runs.parquet"]
    once = (parents["space"] == BASELINE) & (parents["condition"] == runs["pretrained_on"].iloc[0])
    once &= parents["network"] == runs["home"].iloc[0]
    errors = runs.groupby(["pretrain_seed", "space"])["val_error"].mean().unstack("space")
    table = runs.drop_duplicates("space").set_index("space")[["family", "granularity"]]
    if once.any():
        errors[ONE_PASS] = parents[once].groupby("pretrain_seed")["val_error"].mean()
        table.loc[ONE_PASS] = [ONE_PASS, int(about["classes"])]
    images = str(about["source"]), int(about["classes"]), int(about["train_images"])
    return Arms(table.assign(mean=errors.mean()), errors, where, *images, str(runs["architecture"].iloc[0]))


def beside(**several: Arms) -> Arms:
    """Combine arms of several ways of training the same backbones into one; spaces become NAME/SPACE."""
    import pandas as pd

    tables, errors = [], []
    for name, way in several.items():
        tables.append(way.table.rename(index=partial("{}/{}".format, name)))
        errors += [] if way.errors is None else [way.errors.rename(columns=partial("{}/{}".format, name))]
    first = next(iter(several.values()))
    return replace(first, table=pd.concat(tables), errors=pd.concat(errors, axis=1) if errors else None)


def nearest(one: Frame, others: Frame, within: float) -> list[Contrast]:
    """Return each arm minus the other arm with the nearest number of classes, if the ratio is at most `within`."""
    contrasts = []
    for space, granularity in one["granularity"].items():
        off = {rival: abs(math.log(size / granularity)) for rival, size in others["granularity"].items()}
        rival = min(off, key=off.get, default=None)
        contrasts += [minus(space, rival)] if rival is not None and off[rival] <= math.log(within) else []
    return contrasts


def at_granularity(arms: Frame, granularity: float) -> Contrast:
    """Interpolate the error at a number of classes between the two nearest arms, on a log axis; empty beyond ends."""
    sizes = arms["granularity"]
    below, above = sizes[sizes <= granularity], sizes[sizes >= granularity]
    if below.empty or above.empty:
        return {}
    low, high = below.idxmax(), above.idxmin()
    if sizes[low] == sizes[high]:
        return {low: 1.0}
    share = math.log(granularity / sizes[low]) / math.log(sizes[high] / sizes[low])
    return {low: 1 - share, high: share}
