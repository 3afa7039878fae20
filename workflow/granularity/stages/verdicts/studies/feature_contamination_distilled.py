"""Tables 1 to 5 of Zhang et al. 2024: networks distilled from an encoder, and what they lose out of distribution.

In our results the teacher is the encoder's embedding, and a student a network trained with the objective `distil`, one
per pretraining seed; both are probed for the target, on `val` (in distribution) and on every other split except
`train`. Errors are in percent, differences in percentage points; the claims are in `claims/words/`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from granularity.claims import preregistered, published
from granularity.claims.claim import ABOVE_ZERO, Claim, unmet
from granularity.stages.verdicts.arms import Frame, Tables

READS = ("measure/values.parquet", "measure/runs.parquet")
COLUMNS = ("condition", "target", "source", "run", "key", "split")
PUBLISHED = ("feature_contamination",)
WORDS = preregistered.words("feature_contamination_distilled")
TABLES = ("T1", "T2", "T3", "T4")
ID = ("ImageNet", "ID")  # the tables' names of in-distribution test images
OOD = ("mean of the five shifts", "OOD")
TEACHER, STUDENT, DOMAIN = "embedding", "distil", "domain"
SINGLE = 1.0  # points, in place of the spread in a table with one run each


@dataclass(frozen=True)
class Pair:
    """A teacher and its students."""

    teacher: np.ndarray  # errors in and out of distribution, float64 [2]
    students: np.ndarray  # the same for each student, float64 [N, 2]
    where: str  # which images and network
    printed: bool = False  # whether printed in a paper, with one run each
    resnet: bool = False  # whether they are ResNets on ImageNet, as D2 requires


def judge(tables: Tables) -> Iterator[Claim]:
    """Judge D1 to D3 for each condition and network."""
    about = tables["samples"].set_index("condition")
    targets, sources = about["target"].to_dict(), about["source"].to_dict()
    values, runs = (tables[read] for read in READS)
    errors = values.merge(runs, on=["condition", "run"], suffixes=("", "_of"))
    errors = errors[errors["key"].str.endswith("/linear") & (errors["split"] != "train")]
    tested = False
    for condition, part in errors.groupby("condition", sort=False):
        ranks = part["key"].str.removesuffix("/linear")
        target_rows = part[ranks == targets[condition]]
        for network, students in target_rows[target_rows["space"] == STUDENT].groupby("network", sort=False):
            tested = True
            teacher = _errors(target_rows[target_rows["run"] == TEACHER])
            resnet = sources[condition] == "imagenet" and "resnet" in network
            yield from claims(Pair(teacher.mean(0), _errors(students), f"{condition}, {network}", resnet=resnet))
        domains = part[(ranks == DOMAIN) & (part["split"] == "val")]
        pair = [domains.loc[domains[key] == value, "value"] for key, value in (("run", TEACHER), ("space", "target"))]
        if all(map(len, pair)):
            yield domain(pair[0].mean(), pair[1].to_numpy(float), condition)
    if not tested:
        yield from claims(Pair(np.full(2, np.nan), np.empty((0, 2)), "no such networks"))
        yield domain(np.nan, np.empty(0), "no such networks")


def printed() -> Iterator[Pair]:
    """Yield the pairs in the paper's tables, with accuracies and macro F1 converted to errors."""
    rows = published.rows(PUBLISHED[0])
    rows = rows[rows["table"].isin(TABLES)]
    parts = rows["setting"].str.partition("; tested on ")
    for where, group in rows.assign(test=parts[2]).groupby(parts[0], sort=False):
        errors = {
            arm: [100 - group.loc[(group["arm"] == arm) & group["test"].isin(test), "mean"] for test in (ID, OOD)]
            for arm in ("pretrained", "distilled")
        }
        if all(len(values) == 1 for pair in errors.values() for values in pair):
            teacher, student = (np.array([float(values.iloc[0]) for values in pair]) for pair in errors.values())
            yield Pair(teacher, student[None], where, True, where.startswith("ImageNet; CLIP RN"))


def claims(pair: Pair) -> Iterator[Claim]:
    """D1 and D2, for our networks or for a printed table."""
    lost = pair.students - pair.teacher
    none = unmet((len(lost) > 0, "no network distilled from an encoder was probed on val and on another split"))
    reason = unmet((pair.resnet, "no ResNet on ImageNet: of others the paper's own students are worse"))
    yield _claim("D1", pair.where, lost[:, 1] - lost[:, 0], none, SINGLE if pair.printed else 0)
    yield _claim("D2", pair.where, lost[:, 0], none or reason, SINGLE if pair.printed else 0)


def domain(teacher: float, networks: np.ndarray, where: str, single: bool = False) -> Claim:
    """D3: the error of a linear probe for the domain, on an encoder and on networks trained only on the target."""
    none = unmet((len(networks) > 0, "no rank `domain` was probed of an encoder and of networks on the target"))
    return _claim("D3", where, networks - teacher, none, 0.1 if single else 0)


def _claim(id: str, where: str, values: np.ndarray, untested: str, margin: float) -> Claim:
    """Return a claim of the file, judged by its interval; with one run each, a margin replaces the spread."""
    sign = {"judged": "interval", "low": ABOVE_ZERO, "reason": "the paper's statement is a sign"}
    if margin:
        sign = {"judged": "mean", "low": margin, "reason": "one run of each: a margin stands for the spread"}
    words = sign | WORDS[id]
    quantity = f"{where}: {words.pop('quantity')}"
    return Claim(id, quantity=quantity, values=list(values), untested=untested, **words)


def _errors(rows: Frame) -> np.ndarray:
    """Return errors in and out of distribution of each run: float64 [N, 2]; runs without both are left out."""
    frame = rows.assign(where=np.where(rows["split"] == "val", "ID", "OOD"))
    table = frame.pivot_table(index="run", columns="where", values="value", aggfunc="mean", observed=True)
    return table.reindex(columns=["ID", "OOD"]).dropna().to_numpy(float)
