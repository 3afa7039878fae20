"""Arms, which studies compare: the errors of networks finetuned after a pretraining, by label space of the pretraining.

Errors are validation errors in percent, differences in percentage points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from granularity.claims import published
from granularity.claims.claim import unmet

if TYPE_CHECKING:
    import pandas as pd

PAPER = "granularity"
READS = ("pretrain/runs.parquet", "finetune/runs.parquet")
BASELINE = "target"  # the space whose labels the target's are
RUNS, BACKBONES = 6, 2  # at least, behind each arm, as in the paper
SIGN = "the paper's statement is a sign; its size depends on data, network and schedule"


@dataclass(frozen=True)
class Arms:
    """Arms that are compared with one another, of one network and way of finetuning.

    Attributes:
        table: a row per arm but the baseline: `space`, `family`, `granularity`, `mean` and `std` (of the errors),
            `runs`, `backbones`, `transfer` (where there are several, the one that is best for the arm).
        baseline: the same of the baseline, as a mapping; None without one.
        where: condition, network and transfer, in words.
        source, classes, train_images: of the images that are finetuned on.
        errors: the errors behind each arm, by space.
        one_pass: the errors of the baseline's networks before they are finetuned.
        architecture: of the networks; empty if it does not matter.
    """

    table: pd.DataFrame
    baseline: dict | None = None
    where: str = ""
    source: str = ""
    classes: int = 0
    train_images: int = 0
    errors: dict[str, pd.Series] | None = None
    one_pass: pd.Series | None = None
    architecture: str = ""

    def of(self, *families: str) -> pd.DataFrame:
        """The arms of some families, from coarse to fine."""
        return self.table[self.table["family"].isin(families)].sort_values("granularity")

    def finer(self, classes: int) -> pd.DataFrame:
        """Human ranks of more classes."""
        manual = self.of("manual")
        return manual[manual["granularity"] > classes]

    def differences(self, arms: pd.DataFrame) -> list[float]:
        """Mean errors of arms minus the baseline's; empty without a baseline."""
        return [] if self.baseline is None else list(arms["mean"] - self.baseline["mean"])

    def too_few(self, arms: pd.DataFrame, what: str) -> str:
        """Why arms cannot be told from the baseline, see :func:`granularity.claims.claim.unmet`."""
        base = [] if self.baseline is None else [self.baseline]
        return unmet(
            (len(base) > 0, "no baseline: no network pretrained on the target's own labels was finetuned"),
            (len(arms) > 0, f"no label space of {what}"),
            *enough([*arms.to_dict("records"), *base]),
        )

    def is_from(self, source: str, classes: int) -> bool:
        return (self.source, self.classes) == (source, classes)


NONE = {"space": "", "family": "", "granularity": 0.0, "mean": 0.0, "std": 0.0, "runs": 0, "backbones": 0}


def paper(table: str, baseline: str = "baseline", setting: str = "") -> Arms:
    """The arms of a published table: errors, and 100 minus what it prints as accuracy; `setting`: rows that hold it."""
    rows = published.rows(PAPER, table).rename(columns={"arm": "family", "x": "granularity"})
    rows = rows[rows["setting"].str.contains(setting, regex=False)].copy()
    accuracy = rows["metric"] == "accuracy_percent"
    rows["mean"] = rows["mean"].where(~accuracy, 100 - rows["mean"])
    base = rows["family"] == baseline
    return Arms(rows[~base], rows[base].iloc[0].to_dict() if base.any() else None)


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

    return Arms(pd.DataFrame([NONE]).iloc[:0], where="no such networks", errors={})


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
    by = runs.groupby(["space", "family", "granularity"], sort=False)
    table = by.agg(
        mean=("val_error", "mean"),
        std=("val_error", "std"),
        runs=("val_error", "size"),
        backbones=("pretrain_seed", "nunique"),
        transfer=("transfer", "first"),
    ).reset_index()
    base = table[table["space"] == BASELINE].to_dict("records")
    about = tables["samples"].set_index("condition").loc[runs["condition"].iloc[0]]
    parents = tables["pretrain/runs.parquet"]
    once = (parents["space"] == BASELINE) & (parents["condition"] == runs["pretrained_on"].iloc[0])
    once &= parents["network"] == runs["home"].iloc[0]
    return Arms(
        table[table["space"] != BASELINE],
        base[0] if base else None,
        where,
        str(about["source"]),
        int(about["classes"]),
        int(about["train_images"]),
        {space: part["val_error"] for space, part in runs.groupby("space")},
        parents.loc[once, "val_error"],
        str(runs["architecture"].iloc[0]),
    )


def enough(table: list[dict], runs: int = RUNS, backbones: int = BACKBONES) -> Iterator[tuple[bool, str]]:
    """A precondition per arm: as many runs and backbones as it takes."""
    for arm in table:
        words = f"{arm['space']}: {arm['runs']} runs on {arm['backbones']} backbones, needs {runs} on {backbones}"
        yield arm["runs"] >= runs and arm["backbones"] >= backbones, words


def nearest(one: pd.DataFrame, others: pd.DataFrame, within: float) -> Iterator[tuple[dict, dict]]:
    """Each arm beside that of the others whose number of classes is nearest, if it is at most `within` times off."""
    for arm in one.to_dict("records"):

        def off(other: dict, arm: dict = arm) -> float:
            return abs(math.log(other["granularity"] / arm["granularity"]))

        other = min(others.to_dict("records"), key=off, default=None)
        if other is not None and off(other) <= math.log(within):
            yield arm, other


def in_stds(one: dict, other: dict) -> float:
    """How much larger the error of one arm is than that of the other, in pooled standard deviations of their runs."""
    difference, pooled = one["mean"] - other["mean"], math.sqrt((one["std"] ** 2 + other["std"] ** 2) / 2)
    return difference / pooled if pooled else math.copysign(math.inf, difference) if difference else 0.0
