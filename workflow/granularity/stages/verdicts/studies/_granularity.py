"""The tables of Hong et al. 2023, one study each (docs/studies.md); claims in words: `claims/words/granularity.yaml`.

Functions such as `t5` yield the claims of a table, about our arms or the printed ones.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

from granularity.claims import preregistered, statistics
from granularity.claims.claim import NO_INTERVAL, Claim, unmet
from granularity.stages.verdicts import arms as of
from granularity.stages.verdicts.arms import BASELINE, ONE_PASS, Arms, Contrast, Frame, Tables, minus

TWICE = 2  # V1: a rank with hardly more classes than the target (phylum: 13 against 11) is hardly finer
NEAR = 2  # V5: largest ratio to the nearest number of clusters
FINE = 200  # V5: the paper's human ranks with more classes
GAIN = 3.0  # V7: points to either side
WHOLE = 1_000_000  # V8: least training images; a part of ImageNet-1k has fewer per class
CLOSE = 0.08  # V12: share of the length, less than half of the distance between 50 and 70 epochs
OTHER_DATA = "another data set than the paper's: 500,000 images of iNaturalist 2021, 11 classes"
WORDS = preregistered.words("granularity")
Contrasts = Callable[[Arms], list[Contrast]]


def ask(key: str, contrasts: Contrasts, ours: Arms, theirs: Arms, *how: Any, **more: Any) -> Iterator[Claim]:
    """Yield the rows of a claim of the file, see :func:`granularity.stages.verdicts.arms.ask`; `more` overrides it."""
    return of.ask({"id": key.split()[0], **WORDS[key], **more}, contrasts, ours, theirs, *how)


def against(
    key: str, find: Callable[[Arms], Frame], what: str, chance: bool, ours: Arms, theirs: Arms, **more: Any
) -> Iterator[Claim]:
    """Yield the rows of a claim that compares arms with the baseline, corrected for as many as the report compares."""
    untested = "; ".join(filter(None, (more.pop("untested", ""), of.without(ours, find(ours), what))))
    how = untested, of.against_baseline(ours, chance)
    return ask(key, lambda arms: of.from_baseline(find(arms)), ours, theirs, *how, **more)


def words_of(key: str, arms: Arms, more: str = "") -> dict[str, Any]:
    """Return the words of a claim about some arms; `more` is appended to the claim."""
    words = WORDS[key]
    return words | {"claim": f"{words['claim']}{more}", "quantity": f"{arms.where}: {words['quantity']}"}


def full(arms: Arms) -> bool:
    return arms.is_from("inaturalist", 11) and arms.train_images == 500_000


# ---------------------------------------------------------------- Tables 5 and 7: finer labels of the same images


def random(arms: Arms) -> Frame:
    return arms.of("random", "random_instance")


def from_best(end: str, arms: Arms) -> list[Contrast]:
    """Return the rank with the lowest mean, excluding the finest, minus one end."""
    ranks = arms.finer()
    return [minus(ranks["mean"].iloc[:-1].idxmin(), BASELINE if end == "baseline" else ranks.index[-1])]


def aligned(arms: Arms) -> list[Contrast]:
    return of.nearest(arms.of("kmeans_superclass"), arms.of("kmeans"), of.SAME)


def human(arms: Arms) -> list[Contrast]:
    ranks = arms.finer(FINE if full(arms) else None)
    return [pair for family in ("kmeans_superclass", "kmeans") for pair in of.nearest(ranks, arms.of(family), NEAR)]


def even(arms: Arms) -> list[Contrast]:
    uniform = arms.of("kmeans_superclass")
    weights = {space: of.at_granularity(uniform, size) for space, size in arms.of("rebalanced")["granularity"].items()}
    return [{space: 1.0} | {name: -weight for name, weight in at.items()} for space, at in weights.items() if at]


def gain(arms: Arms) -> list[float]:
    ranks = arms.finer()
    base = arms.table["mean"].get(BASELINE)
    return [100 * (1 - ranks["mean"].min() / base)] if len(ranks) and base else []


def t5(ours: Arms) -> Iterator[Claim]:
    """V1 to V7, compared with Table 7 for ResNet-50 and otherwise with Table 5."""
    source = {"source": "Table 7" if ours.architecture == "resnet50" else "Table 5"}
    ranks, paper, same_data = ours.finer(), of.paper(source["source"].replace("able ", "")), (full(ours), OTHER_DATA)
    finer = "finer human labels"
    yield from against("V1", lambda arms: arms.finer(TWICE * arms.classes - 1), finer, False, ours, paper, **source)
    few = f"{len(ranks)} of at least 2 finer human ranks: the baseline is one end, the finest rank the other"
    no_u = of.without(ours, ranks, finer) or unmet((len(ranks) >= 2, few))
    for end in ("baseline", "finest"):
        yield from ask(f"V2 {end}", partial(from_best, end), ours, paper, no_u, max(1, len(ranks) - 1), **source)
    yield from against("V3", random, "random IDs", True, ours, paper, **source)
    few = f"both were run with as many classes {len(aligned(ours))} times, 2 are needed"
    yield from ask("V4", aligned, ours, paper, unmet((len(aligned(ours)) >= 2, few)), **source)
    none = f"no human rank finer than the target with k-means clusters of a G at most {NEAR} times off"
    yield from ask("V5", human, ours, paper, unmet((len(human(ours)) > 0, none)), **source)
    none = "no rebalanced clusters between two numbers of k-means clusters per superclass"
    yield from ask("V6", even, ours, paper, unmet(same_data, (len(even(ours)) > 0, none)), **source)
    (mean,) = gain(paper)
    by = f"{mean:.2f} %" if full(ours) else "as much as in the paper"
    network = (
        ours.architecture in ("resnet34", "resnet50"),
        "another architecture than the paper's: ResNet-34 or ResNet-50",
    )
    band = {"low": mean - GAIN, "high": mean + GAIN, "published": [mean], "untested": unmet(same_data, network)}
    yield Claim("V7", values=gain(ours), **source, **words_of("V7", ours, f" {by}") | band)


def t7(ours: Arms, architectures: int = 1) -> Iterator[Claim]:
    """V13, the signs of V1 and V3 again; `architectures`: how many architectures have a baseline."""
    papers = ours.is_from("inaturalist", 11) and ours.architecture == "resnet50"
    alone = unmet((papers or architectures >= 2, f"baselines of {architectures} architectures, needs 2"))
    at = f"error minus the baseline's{f', {ours.architecture}' if ours.architecture else ''}"
    for key, *how in (("ranks", Arms.finer, "finer human labels", False), ("random", random, "random IDs", True)):
        quantity = f"{at}, {WORDS[f'V13 {key}']['quantity']}"
        yield from against(f"V13 {key}", *how, ours, of.paper("T7"), quantity=quantity, untested=alone)


def judge_t7(tables: Tables) -> list[Claim]:
    all_arms = of.same_images(tables)
    architectures = len({ours.architecture for ours in all_arms if ours.has(BASELINE)})
    return of.corrected(claim for ours in all_arms for claim in t7(ours, architectures))


# ---------------------------------------------------------------- Tables 2 and 9, and the baselines


def t9(ours: Arms) -> Iterator[Claim]:
    """V8, the negative result: labels that divide the target's classes."""

    def cut(arms: Arms) -> Frame:
        return arms.of("kmeans_superclass", "kmeans_class", "random_superclass")

    imagenet = ours.is_from("imagenet", 1000) and ours.train_images >= WHOLE
    reason = unmet((imagenet, "another data set than the paper's: all of ImageNet-1k, 1000 classes"))
    untested = reason or of.without(ours, cut(ours), "labels within the target's classes")
    return ask("V8", lambda arms: of.from_baseline(cut(arms)), ours, of.paper("T9"), untested)


def t2(ours: Arms) -> Iterator[Claim]:
    """V9; as in the paper, each arm is finetuned in several ways, and the best one counts."""

    found, paper = levels(ours), of.paper("T2")
    several = unmet((len(found) >= 2, f"{len(found)} WordNet levels or human ranks, needs 2"))
    untested = several or of.without(ours, ours.table.loc[found], "WordNet levels")
    as_many = of.against_baseline(ours, False)
    yield from ask("V9 leaves", lambda arms: [minus(levels(arms)[-1], BASELINE)], ours, paper, untested, as_many)
    yield from ask("V9 ends", lambda arms: [minus(levels(arms)[0], levels(arms)[-1])], ours, paper, untested)


def one_pass(ours: Arms) -> Iterator[Claim]:
    """V11, compared with the table that has the data set's baseline."""
    untested = of.without(ours, ours.table, "any kind") or unmet((ours.has(ONE_PASS), "no error after one pass"))
    paper = of.paper({"imagenet21k": "T2", "imagenet": "T9"}.get(ours.source, "T5"))
    how = untested, of.against_baseline(ours, True)
    return ask("V11", lambda arms: [minus(ONE_PASS, BASELINE)], ours, paper, *how)


# ---------------------------------------------------------------- Tables 3, 4, 10 and 11: to another data set

WAYS = {"finetuned": ("Tables 3 and 10", False), "probed": ("Tables 4 and 11", True)}  # is only the head trained?


def judge_t3(tables: Tables) -> list[Claim]:
    runs = of.joined(tables, elsewhere=True)
    claimed = [] if len(runs) else list(t3({}, "no transfer to another data set"))
    for (*home, condition), part in runs.groupby(["pretrained_on", "home", "condition"], sort=False):
        ways = {way: part[part["head_alone"] == head_alone] for way, (_, head_alone) in WAYS.items()}
        by_way = {way: next(of.best(tuned, tables)) for way, tuned in ways.items() if len(tuned)}
        claimed += t3(by_way, f"{', '.join(home)} to {condition}")
    return of.corrected(claimed)


def t3_paper() -> dict[str, Arms]:
    """Return the paper's levels: Table 10, each at its best learning rate, and Table 11."""
    tuned = of.paper("T10")
    best = tuned.table.loc[tuned.table.groupby("granularity")["mean"].idxmin()]
    return {"finetuned": replace(tuned, table=best), "probed": of.paper("T11")}


def t3(found: dict[str, Arms], where: str) -> Iterator[Claim]:
    """V10, from the arms of each of `WAYS`: ours, or the paper's."""
    theirs, short = t3_paper(), {}
    for way, (source, _) in WAYS.items():
        ours = replace(found.get(way, of.nothing()), where=f"{where}, {way}")
        count = len(levels(ours))
        short[way] = unmet((count >= 2, f"{count} WordNet levels or human ranks {way} on another data set, needs 2"))
        ends = ours, theirs[way], short[way]
        yield from ask("V10 levels", lambda arms: [minus(levels(arms)[0], levels(arms)[-1])], *ends, source=source)
        yield inverted(ours, theirs[way], source, short[way])
    both = replace(of.beside(**found) if found else of.nothing(), where=where)
    yield from ask("V10 both", gaps, both, of.beside(**theirs), unmet(*((not why, why) for why in short.values())))


def inverted(ours: Arms, paper: Arms, source: str, untested: str) -> Claim:
    """Return a claim on how many steps to a coarser level raise accuracy, by intervals corrected for their number."""

    def steps(arms: Arms) -> list[statistics.Difference]:
        return [arms.contrast(minus(finer, one)) for one, finer in itertools.pairwise(levels(arms))]

    differences = [] if untested else steps(ours)

    def rising(count: int) -> int:
        return sum(statistics.interval(*one, max(count, len(differences)))[0] > 0 for one in differences)

    untested = untested or unmet((not any(math.isnan(one.error) for one in differences), NO_INTERVAL))
    values, recount = ([rising(1)], rising) if differences else ([], None)
    published = [sum(one.difference > 0 for one in steps(paper))]
    about = {"untested": untested, "published": published, "recount": recount}
    return Claim("V10", source=source, values=values, **words_of("V10 inverted", ours) | about)


def levels(arms: Arms) -> list[str]:
    """Return WordNet levels, or human ranks if there are more of them, from coarse to fine."""
    return max((list(arms.of(family).index) for family in ("wordnet", "manual")), key=len)


def gaps(arms: Arms) -> list[Contrast]:
    """Return the error reduction from the coarsest to the finest level: when probed, minus when finetuned."""
    contrasts = []
    for way, factor in {"probed": 2, "finetuned": -2}.items():  # doubled, because the average of two is then their sum
        spaces = levels(replace(arms, table=arms.table[arms.table.index.str.startswith(f"{way}/")]))
        contrasts.append({spaces[0]: factor, spaces[-1]: -factor})
    return [of.average(contrasts)]


# ---------------------------------------------------------------- Table 6: from epochs 50, 70 and 90 of the pretraining


def judge_t6(tables: Tables) -> list[Claim]:
    """Judge each condition and network, on human ranks or WordNet levels, at kept epochs nearest to the paper's."""
    runs = of.joined(tables)
    arm_runs = runs[runs["space"] != BASELINE]
    spaces = (set(arm_runs.loc[arm_runs["family"] == family, "space"]) for family in ("manual", "wordnet"))
    runs = runs[runs["space"].isin(max(spaces, key=len)) & ~runs["head_alone"]]
    lengths = tables["pretrain/checkpoints.parquet"].groupby("run_id")["epoch"].max()
    share = runs["from_epoch"].astype(float) / runs["parent"].map(lengths).astype(float)
    claims: list[Claim] = []
    for part in [part for _, part in runs.groupby(["condition", "home"], sort=False)] or [runs]:
        last = next(of.best(part[part["from_epoch"].isna()], tables), of.nothing())
        for epoch in (50, 70):
            near = part[(share.loc[part.index] - epoch / 90).abs() <= CLOSE]
            claims += t6(epoch, next(of.best(near, tables), of.nothing()), last)
    return of.corrected(claims)


def t6_paper(epoch: int) -> Arms:
    """Return the paper's arms finetuned from epoch 50, 70 or 90."""
    return of.paper("T6", f"to epoch {epoch},")


def t6(epoch: int, kept: Arms, last: Arms) -> Iterator[Claim]:
    """V12 for epoch 50 or 70, from the arms finetuned from there and from the end: ours, or the paper's."""

    def ranks(arms: Arms) -> list[Contrast]:
        spaces = [name.partition("/")[2] for name in arms.table.index if name.startswith("kept/")]
        spaces = [space for space in spaces if space != ONE_PASS]  # never finetuned: the same beside both
        return [minus(f"kept/{space}", f"end/{space}") for space in spaces if arms.has(f"end/{space}")]

    both, paper = of.beside(end=last, kept=kept), of.beside(end=t6_paper(90), kept=t6_paper(epoch))
    none = f"no human rank finetuned from epoch {epoch} of 90, or as late, and from the end (from_epoch of a transfer)"
    untested = unmet((len(ranks(both)) > 0, none), (full(both) or epoch == 50, OTHER_DATA))
    yield from ask(f"V12 {epoch}", ranks, both, paper, untested)


# ---------------------------------------------------------------- the studies


def study(table: str, judge: Callable[[Tables], Iterable[Claim]], *more: str) -> ModuleType:
    module = ModuleType(f"granularity_{table}")
    module.READS = ("pretrain/runs.parquet", "finetune/runs.parquet", *more)
    module.COLUMNS, module.PUBLISHED, module.judge = of.COLUMNS, ("granularity",), judge
    return module


def same(table: str, claims: Callable[[Arms], Iterator[Claim]], **how: Any) -> ModuleType:
    """Return a study whose claims are about arms on the same images."""
    every = of.same_images
    return study(table, lambda tables: of.corrected(claim for ours in every(tables, **how) for claim in claims(ours)))


ALL = (
    same("one_pass", one_pass),
    same("t2", t2, split=of.best),
    study("t3", judge_t3),
    same("t5", t5),
    study("t6", judge_t6, "pretrain/checkpoints.parquet"),
    study("t7", judge_t7),
    same("t9", t9),
)
SEVERAL = {one.__name__: one for one in ALL}
