"""Our numbers of rows about networks trained on images: read from the table of results of an experiment's report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.claims.experiments import Source
from granularity.look.papers.experiments import Experiment, told
from granularity.look.papers.judged import THEORY, Group
from granularity.look.papers.numbers import Part
from granularity.look.papers.values import Answer, Value
from granularity.stages.verdicts.studies.granularity_t5 import SAME
from granularity.store.artifacts import Artifact

if TYPE_CHECKING:
    import pandas as pd

BASELINE = "baseline"
TABLE = "tables/results.parquet"
NEEDED = ["train_images", "transfer", "baseline_mean", "space", "series", "role", "granularity", "runs", "mean", "std"]
Row = Mapping[str, str]
Tables = Mapping[str, "pd.DataFrame | None"]  # by the name of a folder of results


def results(root: Path, name: str) -> pd.DataFrame | None:
    """The table of results of the report below a folder of results; None where there is no report.

    Raises:
        GranularityError: the report cannot be read.
    """
    folder = root / name / "report"
    if not folder.exists():
        return None
    report = Artifact.open(folder, "report")
    return report.table(TABLE, NEEDED) if TABLE in report.manifest["files"] else None


def tables(root: Path, parts: Iterable[Part], wrong: list[str]) -> Tables:
    """:func:`results` of the experiments that would give published rows, and of those judged on other data, by name.

    Args:
        wrong: takes what cannot be read, a line each.
    """
    parts, found = list(parts), {}
    names = {one.name for part in parts for one in part.experiments}
    names |= {group.results for part in parts for group in part.elsewhere if group.results != THEORY}
    for name in sorted(names):
        with told(wrong):
            found[name] = results(root, name)
    return found


def answer(
    root: Path,
    row: Row,
    source: Source,
    experiments: Iterable[Experiment],
    elsewhere: Iterable[Group],
    tables: Tables,
) -> Answer:
    """Our number of a row, from the experiment that would give it, and beside it one on other data.

    Args:
        experiments: those that the row's entry names.
        elsewhere: what was judged of the same study in other experiments.
        tables: :func:`results` of each folder of results, by its name.
    """
    other = " | ".join(filter(None, (_near(row, source, one, tables.get(one.results)) for one in elsewhere)))
    why = []
    for one in experiments:
        table = tables.get(one.name)
        command = f"snakemake{one.options}"
        if table is None:
            why.append(_not_run(root, one, command))
            continue
        found = _best(_exact(table, row, source))
        number = None if found is None else _in_metric(row["metric"], found)
        if number is not None:
            return Answer((number,), f"{one.name}: {_arm(found)}", other=other, why=source.why)
        near = _nearest(table, row, source)
        beside = "" if near is None else f"; the nearest is {_arm(near)}"
        why.append(f"The report of {one.name} has no {row['arm']} of G = {row['x'] or 'any'}{beside}.")
    return Answer(other=other, why=" ".join([source.why, *why]).strip())


def _not_run(root: Path, one: Experiment, command: str) -> str:
    if (root / one.name).is_dir():
        return f"Results of {one.name} lie here in part, without a report: {command}"
    needs = f" It lacks: {'; '.join(one.missing)}." if one.missing else ""
    return f"Not run.{needs} {str(one.planned).replace('planned', 'Planned', 1)}. {command}"


def _exact(table: pd.DataFrame, row: Row, source: Source) -> pd.DataFrame:
    """The rows of a table of results that are of the published row's arm."""
    own = table[table["transfer"].isin(source.transfers)]
    if source.space:
        return own[own["space"] == source.space.replace("{x}", row["x"])]
    if row["arm"] == BASELINE:
        return own[own["role"] == BASELINE]
    own = own[(own["series"] == row["arm"].replace(" ", "_")) & (own["role"] != BASELINE)]
    distance = _distance(own, row)
    return own[(distance == distance.min()) & (distance <= math.log(SAME))]


def _distance(found: pd.DataFrame, row: Row) -> pd.Series:
    """How far the G of each arm is from the published one, as the logarithm of their ratio."""
    return found["granularity"].astype(float).map(lambda g: abs(math.log(g / float(row["x"] or g))))


def _nearest(table: pd.DataFrame, row: Row, source: Source) -> dict | None:
    """The arm of the same family whose G is nearest, on the largest training set."""
    found = _exact(table, row, source)
    if found.empty:
        same = table["transfer"].isin(source.transfers) & (table["series"] == row["arm"].replace(" ", "_"))
        found = table[same & (table["role"] != BASELINE)]
        distance = _distance(found, row)
        found = found[distance == distance.min()]
    return _best(found)


def _best(found: pd.DataFrame) -> dict | None:
    """Of several ways of finetuning the one with the lowest error, on the largest training set."""
    found = found[(found["train_images"] == found["train_images"].max()) & found["mean"].notna()]
    return None if found.empty else found.sort_values("mean", kind="stable").iloc[0].to_dict()


def _in_metric(metric: str, found: Mapping) -> Value | None:
    """A row of the table of results in a published metric; None where it is no error, accuracy or gain."""
    mean, sd, n = float(found["mean"]), float(found["std"]), int(found["runs"])
    if metric == "error_percent":
        return Value(found["space"], mean, sd, n)
    if metric == "accuracy_percent":
        return Value(found["space"], 100 - mean, sd, n)
    if metric == "relative_gain_percent" and found["baseline_mean"]:
        return Value(found["space"], 100 * (1 - mean / float(found["baseline_mean"])), math.nan, n)
    if metric == "gain_points":
        return Value(found["space"], float(found["baseline_mean"]) - mean, math.nan, n)
    return None


def _near(row: Row, source: Source, group: Group, table: pd.DataFrame | None) -> str:
    found = None if table is None else _nearest(table, row, source)
    number = None if found is None else _in_metric(row["metric"], found)
    if number is None:
        return ""
    base = _in_metric(row["metric"], found | {"mean": found["baseline_mean"], "std": math.nan})
    alone = found["role"] == BASELINE or base is None or math.isnan(base.mean) or "gain" in row["metric"]
    beside = "" if alone else f"; its baseline {base.words}"
    return f"{group.results}: {_arm(found)}: {number.words} ({number.n} runs){beside}; of {_data(group, found)}"


def _data(group: Group, found: Mapping) -> str:
    """The data of a row of the table of results: of the sizes that a group was run with, its own."""
    size = f"{int(found['train_images']):,} training images"
    return next((one for one in group.data.split("; ") if size in one), group.data)


def _arm(found: Mapping) -> str:
    """A row of the table of results in words: label space, G, and the way of finetuning where it is not the usual."""
    g = "" if math.isnan(found["granularity"]) else f", G = {int(found['granularity']):,}"
    return f"{found['space']}{g}" + ("" if found["transfer"] == "target" else f", {found['transfer']}")
