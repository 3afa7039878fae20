"""Tables 1 to 5 of Zhang et al. 2024: networks distilled from an encoder, and what they lose out of distribution.

Of our results a teacher is the encoder's embedding, a student the networks that the objective `distil` has trained, one
per pretraining seed; both are probed for the target, on `val` (in distribution) and on every other split but `train`.
Errors are in percent, differences in percentage points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from granularity.claims import published
from granularity.claims.claim import ABOVE_ZERO, Claim, unmet

if TYPE_CHECKING:
    import pandas as pd

READS = ("measure/values.parquet", "measure/runs.parquet")
PUBLISHED = ("feature_contamination",)
TABLES = ("T1", "T2", "T3", "T4")
ID = ("ImageNet", "ID")  # what the tables call the test images in distribution
OOD = ("mean of the five shifts", "OOD")
TEACHER, STUDENT, DOMAIN = "embedding", "distil", "domain"
SINGLE = 1.0  # points, for the spread of a table that has one run of each
SIZE = "a margin set beforehand: the paper's ResNets are within 0.6 points"


@dataclass(frozen=True)
class Pair:
    """A teacher and its students.

    Attributes:
        teacher: errors in and out of distribution, float64 [2].
        students: the same of each student, float64 [N, 2].
        where: which images and network.
        printed: whether a paper printed it: one run of each.
        resnet: whether they are ResNets on ImageNet, as D2 says.
    """

    teacher: np.ndarray
    students: np.ndarray
    where: str
    printed: bool = False
    resnet: bool = False


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge D1 to D3 of each condition and network."""
    about = tables["samples"].set_index("condition")
    targets, sources = about["target"].to_dict(), about["source"].to_dict()
    found = tables["measure/values.parquet"].merge(
        tables["measure/runs.parquet"], on=["condition", "run"], suffixes=("", "_of")
    )
    found = found[found["key"].str.endswith("/linear") & (found["split"] != "train")]
    some = False
    for condition, part in found.groupby("condition", sort=False):
        ranks = part["key"].str.removesuffix("/linear")
        own = part[ranks == targets[condition]]
        for network, students in own[own["space"] == STUDENT].groupby("network", sort=False):
            some = True
            teacher = _errors(own[own["run"] == TEACHER])
            resnet = sources[condition] == "imagenet" and "resnet" in network
            yield from claims(Pair(teacher.mean(0), _errors(students), f"{condition}, {network}", resnet=resnet))
        domains = part[(ranks == DOMAIN) & (part["split"] == "val")]
        of = [domains.loc[domains[key] == value, "value"] for key, value in (("run", TEACHER), ("space", "target"))]
        if all(map(len, of)):
            yield domain(of[0].mean(), of[1].to_numpy(float), condition)
    if not some:
        yield from claims(Pair(np.full(2, np.nan), np.empty((0, 2)), "no such networks"))
        yield domain(np.nan, np.empty(0), "no such networks")


def printed() -> Iterator[Pair]:
    """The pairs of the paper's tables that have both, accuracies and macro F1 turned into errors."""
    rows = published.rows(PUBLISHED[0])
    rows = rows[rows["table"].isin(TABLES)]
    parts = rows["setting"].str.partition("; tested on ")
    for where, of in rows.assign(test=parts[2]).groupby(parts[0], sort=False):
        errors = {
            arm: [100 - of.loc[(of["arm"] == arm) & of["test"].isin(test), "mean"] for test in (ID, OOD)]
            for arm in ("pretrained", "distilled")
        }
        if all(len(one) == 1 for both in errors.values() for one in both):
            teacher, student = (np.array([float(one.iloc[0]) for one in both]) for both in errors.values())
            yield Pair(teacher, student[None], where, True, where.startswith("ImageNet; CLIP RN"))


def claims(pair: Pair) -> Iterator[Claim]:
    """D1 and D2, of our networks or of a printed table."""
    lost = pair.students - pair.teacher
    none = unmet((len(lost) > 0, "no network distilled from an encoder was probed on val and on another split"))
    how = {"judged": "mean"} if pair.printed else {"judged": "interval"}
    yield Claim(
        "D1",
        "A network distilled from an encoder loses more out of distribution than in it",
        "Section 2, Tables 1 to 4",
        f"{pair.where}: error above the teacher's, out of distribution minus in it",
        list(lost[:, 1] - lost[:, 0]),
        low=SINGLE if pair.printed else ABOVE_ZERO,
        untested=none,
        reason="one run of each: a margin stands for the spread" if pair.printed else "the paper's statement is a sign",
        **how,
    )
    yield Claim(
        "D2",
        "In distribution a distilled ResNet is as good as its teacher",
        "Section 2, Table 1",
        f"{pair.where}: error above the teacher's, in distribution",
        list(lost[:, 0]),
        low=-1.5,
        high=1.5,
        untested=none or unmet((pair.resnet, "no ResNet on ImageNet: of others the paper's own students are worse")),
        reason=SIZE,
        **how,
    )


def domain(teacher: float, networks: np.ndarray, where: str, single: bool = False) -> Claim:
    """D3: the error of a linear probe for the domain, of an encoder and of networks trained on the target alone."""
    return Claim(
        "D3",
        "Pretraining makes domains linear: they are read from an encoder with a lower error than from other networks",
        "Appendix G, Table 5",
        f"{where}: domain error of networks trained on the target minus the encoder's",
        list(networks - teacher),
        low=0.1 if single else ABOVE_ZERO,
        judged="mean" if single else "interval",
        untested=unmet((len(networks) > 0, "no rank `domain` was probed of an encoder and of networks on the target")),
        reason="one run of each: a margin stands for the spread" if single else "the paper's statement is a sign",
    )


def _errors(rows: pd.DataFrame) -> np.ndarray:
    """Errors in and out of distribution of each run: float64 [N, 2]; runs without both are left out."""
    of = rows.assign(where=np.where(rows["split"] == "val", "ID", "OOD"))
    table = of.pivot_table(index="run", columns="where", values="value", aggfunc="mean", observed=True)
    return table.reindex(columns=["ID", "OOD"]).dropna().to_numpy(float)
