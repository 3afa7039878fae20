"""Which label spaces of a configuration to train on first, and how far to trust that: `granularity recommend`."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError, printable
from granularity.claims import claim, foresight, preregistered
from granularity.claims.foresight import CANDIDATES, DUMB, GROUP, PREDICTORS, PROPERTIES, RANDOM, Record
from granularity.look import evidence
from granularity.plan.graph import Condition, Plan
from granularity.stages.hierarchy.space import TARGET
from granularity.store.artifacts import MANIFEST, Artifact

COMMITTED = preregistered.FOLDER.parent / "evidence.csv"  # of the project's own runs
WORDS = {
    "G": "G",
    "nmi_finest": "NMI finest",
    "evenness": "evenness",
    "refinement": "refines",
    "target_information": "bits of target",
    "finest_information": "bits of finest",
    "compactness": "compactness",
    "signal": "signal",
    "weakest": "weakest",
    foresight.MODEL: "model",
    RANDOM: "random",
}
LEGEND = """\
refines         share of images whose labels lie in one target class each
bits of finest  information about the finest rank, beyond that about the target
compactness     share of the embedding's variance between the label's classes
signal          how well a linear read-out of the embedding tells the label beyond the target (R2)
weakest         the share of the least of the embedding's 8 leading directions within target classes
                the last three are adjusted for chance: 0 is what random labels have"""


def gather(
    plan: Plan, results: Sequence[Path], committed: Path | None, command: str
) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """What is known of a configuration's label spaces, and all evidence there is.

    Args:
        plan: of the configuration, whose label spaces are made; nothing need be trained.
        results: folders of results, all of which count.
        committed: a CSV file of further evidence; a group that is in the results is taken from there.
        command: the one that makes label spaces.

    Returns:
        Per condition `condition`, `data` and `spaces`, see :func:`.evidence.properties`; and the evidence.

    Raises:
        GranularityError: label spaces are not made; the file is none of evidence.
    """
    conditions = [one for one in plan.conditions if one.spaces]
    jobs = {one.name: plan.jobs("hierarchy", condition=one.name) for one in conditions}
    folders = {name: [plan.folder(job) for job in found] for name, found in jobs.items()}
    every = [folder for found in folders.values() for folder in found]
    if lacking := [folder for folder in every if not (folder / MANIFEST).exists()]:
        raise GranularityError(
            f"{lacking[0]}: {len(lacking)} of {len(every)} label spaces are not made; make them with: {command}"
        )
    found = [_ahead(plan, one, folders[one.name]) for one in conditions]
    frames = [*map(evidence.found, results), *([] if committed is None else [evidence.read(committed)])]
    return found, functools.reduce(combine, frames)


def _ahead(plan: Plan, condition: Condition, folders: list[Path]) -> dict[str, Any]:
    place = folders[0].parents[1]
    known = evidence.properties(place, [folder for folder in folders if folder.name != TARGET])
    samples = Artifact.peek(place / "samples")
    where = {"data": evidence.data_set(samples), "train_images": samples.summary["images"].get("train", 0)}
    return {"condition": f"{plan.config.name}, {condition.name}", **where, "spaces": known}


def combine(own: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """One table of evidence: the own, and of the other the groups that are not among the own."""
    mine = set(own[GROUP].itertuples(index=False, name=None))
    more = other[[row not in mine for row in other[GROUP].itertuples(index=False, name=None)]]
    return pd.concat([frame for frame in (own, more) if len(frame)] or [own], ignore_index=True)


def rank(found: list[dict[str, Any]], known: pd.DataFrame, record: Record) -> pd.DataFrame:
    """The label spaces of every condition in the order in which to try them: `condition`, what is known of each, `by`,
    the predictor that orders them, `score` and `place`.

    That predictor is the one that beats the dumb ones; where none does, or it is not known of these, the dumb one of
    the better record; NMI where there is no record. Its sign and its weights come from other data sets than the one
    that is ranked.
    """
    tables = []
    for one in found:
        table = one["spaces"].copy()
        best = leader(record, table)
        table.insert(0, "condition", one["condition"])
        table["by"], table["score"] = best, foresight.score(known, table, best, one["data"])
        table["place"] = table["score"].rank(ascending=False, method="min").astype(int)
        tables.append(table.sort_values(["place", "space"]))
    return pd.concat(tables, ignore_index=True)


def leader(record: Record, spaces: pd.DataFrame) -> str:
    """The predictor that orders some label spaces, see :func:`rank`."""
    if record.winner and (record.winner not in spaces or spaces[record.winner].notna().all()):
        return record.winner
    rho = record.table.set_index("predictor")["rho"] if len(record.table) else {"G": 0, "nmi_finest": 1}
    return max(DUMB, key=rho.__getitem__)


def describe(found: list[dict[str, Any]], ranking: pd.DataFrame, record: Record) -> str:
    """The ranking of each condition, the record of every predictor, and the predictions' verdicts, as text."""
    parts = []
    for one in found:
        table = ranking[ranking["condition"] == one["condition"]]
        columns = ["place", "space", *(name for name in PROPERTIES if name != RANDOM)]
        shown = _rounded(table[columns]).rename(columns=WORDS | {"space": "label space", "place": ""})
        best = WORDS[table["by"].iloc[0]]
        head = f"{one['condition']}: {one['train_images']:,} training images, best first by {best}"
        parts.append(f"{head}\n\n{shown.to_string(index=False)}")
    return "\n\n".join([*parts, LEGEND, judgement(record), *_tables(record)])


def judgement(record: Record) -> str:
    """In a sentence or two: how far the order is to be trusted."""
    run = (
        f"Record: {_count(record.data, 'data set')}, {_count(record.groups, 'group')}, {_count(record.spaces, 'row')}."
    )
    if record.data < 2:
        lacking = "a second data set" if record.data else "two data sets"
        return (
            f"{run} NOTHING IS KNOWN of how well any of this predicts: it takes {lacking} with results of at least "
            f"{foresight.FEWEST} label spaces beside the target in one training-set size."
        )
    if record.winner is None:
        return (
            f"{run} NO PROPERTY BEATS the number of classes alone and NMI with the finest rank alone; the order is by "
            "the better of these two."
        )
    return f"{run} {WORDS[record.winner]} beats the number of classes alone and NMI with the finest rank alone."


def _tables(record: Record) -> list[str]:
    judged = claim.table(foresight.claims(record))
    lines = [
        f"  {row.verdict:10s} {row.id}: {'' if np.isnan(row.measured) else f'{row.measured:.3g} '}({row.band})"
        for row in judged.itertuples()
    ]
    file = f"config/preregistrations/{foresight.NAME}.yaml ({preregistered.digest_of(foresight.NAME)})"
    predicted = "\n".join([f"Predicted before, in {file}", *lines])
    as_is = record.within.rename(columns=WORDS).round(2).to_string()
    within = [f"Rank correlations within each data set as they are; a description, no prediction\n{as_is}"]
    if record.table.empty:
        return [*(within if record.data else []), predicted]
    shown = record.table.sort_values("rho", ascending=False, kind="stable").round(2)
    shown["interval"] = [f"{low:.2f} to {high:.2f}" for low, high in zip(shown["low"], shown["high"], strict=True)]
    shown["predictor"] = shown["predictor"].map(WORDS)
    shown["beats"] = shown["beats"].map({True: "yes", False: ""})
    columns = [
        "predictor",
        "rho",
        "interval",
        "rho_meaning",
        *(f"ahead_{name}" for name in DUMB),
        "worst",
        "p",
        "beats",
    ]
    words = {"rho_meaning": "meaning", "ahead_G": "ahead of G", "ahead_nmi_finest": "ahead of NMI", "p": "Holm's p"}
    text = shown[columns].rename(columns=words).to_string(index=False, na_rep="")
    by_data = record.by_data.rename(columns=WORDS).round(2).to_string()
    notes = (
        "rho: rank correlation with the gain of a data set whose results were not used, mean over data sets; interval: "
        "95 %, over label spaces; meaning: labels by chance left out; worst: the least it is ahead of either in any "
        "data set"
    )
    halves = "" if np.isnan(record.ceiling) else f"\nHalf of the backbones predict the other half: {record.ceiling:.2f}"
    return [f"{text}\n{notes}{halves}", f"Of each data set left out\n{by_data}", *within, predicted]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers as people read them; a column that nothing is known of is left out."""
    table = table.dropna(axis=1, how="all")
    percent = {"refinement": lambda value: f"{100 * value:.0f} %"}
    return pd.DataFrame(
        {
            name: [percent.get(name, "{:.2f}".format)(value) for value in column]
            if pd.api.types.is_float_dtype(column)
            else column
            for name, column in table.items()
        }
    )


def write(folder: Path, known: pd.DataFrame, record: Record) -> list[Path]:
    """Write `evidence.csv`, and where there is a record `record.csv`, `predictions.csv` and `recommend.svg`."""
    files = {"evidence.csv": known.round(6).to_csv(index=False).encode()}
    if len(record.table):
        judged = claim.table(foresight.claims(record)).assign(digest=preregistered.digest_of(foresight.NAME))
        files["record.csv"] = record.table.round(4).to_csv(index=False).encode()
        files["predictions.csv"] = judged.round(4).to_csv(index=False).encode()
        files["recommend.svg"] = figure(known, record)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def figure(known: pd.DataFrame, record: Record) -> bytes:
    """Each property against the gain, a colour per data set, labels by chance hollow; and the record."""
    from granularity.stages.theory import figures as draw

    rows = foresight.usable(known)
    with draw.style():
        canvas, panels = draw.canvas(4, 3, width=9, height=2.1)
        for axes, name in zip(panels, [name for name in PREDICTORS if name in PROPERTIES], strict=False):
            for index, (data, some) in enumerate(rows.groupby("data")):
                colour, marker = draw.COLOURS[index % len(draw.COLOURS)], draw.MARKERS[index % len(draw.MARKERS)]
                for chance, part in some.groupby(some["meaningless"].astype(bool)):
                    face = "none" if chance else colour
                    label = None if chance else printable(str(data))
                    axes.scatter(
                        part[name], part["gain"], 12, facecolors=face, edgecolors=colour, marker=marker, label=label
                    )
            axes.axhline(0, color="black", linewidth=0.6)
            axes.set(xlabel=WORDS[name], xscale="log" if name == "G" else "linear")
        panels[11].legend(*panels[0].get_legend_handles_labels(), loc="center")
        for axes in (panels[0], panels[4], panels[8]):
            axes.set_ylabel("gain (points)")
        _bars(panels[10], record, draw.COLOURS)
        for axes in panels[11:]:
            axes.set_axis_off()
        canvas.supxlabel(
            "hollow: labels by chance; rho: of data sets left out, 95 % intervals over label spaces", fontsize=6
        )
        stream = io.BytesIO()
        canvas.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def _bars(axes: Any, record: Record, colours: Sequence[str]) -> None:
    table = record.table.iloc[::-1]
    colour = [colours[0] if name in CANDIDATES else colours[6] for name in table["predictor"]]
    axes.hlines(range(len(table)), table["low"], table["high"], colors=colour, linewidth=1)
    axes.scatter(table["rho"], range(len(table)), 12, c=colour)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(range(len(table)), [WORDS[name] for name in table["predictor"]])
    axes.set(xlabel="rho")
