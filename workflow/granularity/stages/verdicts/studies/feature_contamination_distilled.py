"""Tables 1 to 5 of Zhang et al. 2024: networks distilled from an encoder, and what they lose out of distribution.

In our results the teacher is the encoder's embedding, and students are networks trained with the objective `distil`;
both are probed for the target, on `val` (in distribution) and on every other split except `train`. Networks are
compared as they are at the end of pretraining, each with the encoder of its own draw. The unit of replication is the
backbone (its pretraining seed) or, over draws, the draw. Errors are in percent, differences in percentage points; the
claims are in `claims/words/`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from granularity.claims import preregistered, published
from granularity.claims.claim import ABOVE_ZERO, Claim, unmet
from granularity.stages.verdicts.arms import Frame, Tables, corrected

READS = ("measure/values.parquet", "measure/runs.parquet")
COLUMNS = ("condition", "target", "source", "run", "key", "split", "value", "draw")
COLUMNS += ("space", "network", "pretrain_seed", "transfer", "epoch", "measure")
PUBLISHED = ("feature_contamination",)
WORDS = preregistered.words("feature_contamination_distilled")
TABLES = ("T1", "T2", "T3", "T4")
ID = ("ImageNet", "ID")  # the tables' names of in-distribution test images
OOD = ("mean of the five shifts", "OOD")
TEACHER, STUDENT, DOMAIN = "embedding", "distil", "domain"
ONE = ["condition", "draw", "run"]  # what names a run; the embedding has the same name in every draw
SINGLE = 1.0  # points, in place of the spread in a table with one run each


@dataclass(frozen=True)
class Pair:
    """A teacher and its students."""

    teacher: np.ndarray  # errors in and out of distribution, float64 [2]; or [N, 2], of each student's own teacher
    students: np.ndarray  # the same for each student, float64 [N, 2]
    where: str  # which images and network
    printed: bool = False  # whether printed in a paper, with one run each
    resnet: bool = False  # whether they are ResNets on ImageNet, as D2 requires


def judge(tables: Tables) -> list[Claim]:
    """Judge D1 to D3 for each condition and network."""
    return corrected(_judged(tables))


def _judged(tables: Tables) -> Iterator[Claim]:
    about = tables["samples"].set_index("condition")
    targets, sources = about["target"].to_dict(), about["source"].to_dict()
    errors = _at_the_end(*(tables[read] for read in READS))
    errors = errors[errors["key"].str.endswith("/linear") & (errors["split"] != "train")]
    tested, several = False, errors["measure"].nunique() > 1
    for (condition, measure), part in errors.groupby(["condition", "measure"], sort=False):
        where = f"{condition}, {measure}" if several else condition
        ranks = part["key"].str.removesuffix("/linear")
        target_rows = part[ranks == targets[condition]]
        encoder = target_rows[target_rows["run"] == TEACHER]
        for network, students in target_rows[target_rows["space"] == STUDENT].groupby("network", sort=False):
            tested = True
            resnet = sources[condition] == "imagenet" and "resnet" in network
            pair = _paired(_errors(encoder), _errors(students))
            yield from claims(Pair(*pair, f"{where}, {network}", resnet=resnet))
        domains = part[(ranks == DOMAIN) & (part["split"] == "val")]
        trained = domains[domains["space"] == "target"]
        teacher, networks = _paired(_errors(domains[domains["run"] == TEACHER], "ID"), _errors(trained, "ID"))
        if len(networks):
            yield domain(teacher[:, 0], networks[:, 0], where)
    if not tested:
        yield from claims(Pair(np.full(2, np.nan), np.empty((0, 2)), "no such networks"))
        yield domain(np.nan, np.empty(0), "no such networks")


def _at_the_end(values: Frame, runs: Frame) -> Frame:
    """Return the values of embeddings, and of pretrained networks at their last epoch, with the columns of `runs`."""
    about = runs.drop_duplicates(ONE)  # each measure and job lists its runs
    table = values.merge(about, on=ONE, suffixes=("", "_of"))
    last = table["epoch"].astype(float).groupby([table[key] for key in ONE]).transform("max")
    ended = (table["epoch"].astype(float) == last) & (last > 0) & table["transfer"].isna()
    return table[ended | (table["run"] == TEACHER)]


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


def domain(teacher: float | np.ndarray, networks: np.ndarray, where: str, single: bool = False) -> Claim:
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


def _errors(rows: Frame, *wanted: str) -> Frame:
    """Return a row per run with all of the `wanted` errors (default: `ID` and `OOD`, in and out of distribution), by
    `draw` and `pretrain_seed`.
    """
    frame = rows.assign(where=np.where(rows["split"] == "val", "ID", "OOD"))
    frame["pretrain_seed"] = frame["pretrain_seed"].astype(object).where(frame["pretrain_seed"].notna(), TEACHER)
    index = ["draw", "pretrain_seed", "run"]
    table = frame.pivot_table(index=index, columns="where", values="value", aggfunc="mean", observed=True)
    return table.reindex(columns=list(wanted or ("ID", "OOD"))).dropna()


def _paired(teachers: Frame, students: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean errors of each replicate's students and of the encoder of its draw, float64 [N, K] each."""
    mean = students.groupby(["draw", "pretrain_seed"]).mean()
    own = teachers.groupby("draw").mean().reindex(mean.index.get_level_values("draw")).to_numpy(float)
    known = ~np.isnan(own).any(1)
    return own[known], mean.to_numpy(float)[known]
