"""Stage `verdicts`: what papers claim, compared with what was measured, for one world or one study of images."""

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import claim, published
from granularity.stages.verdicts import STAGE, papers_of, room_of
from granularity.store.artifact import Artifact
from granularity.store.hashing import digest_of
from granularity.store.task import Task

# Columns added to a stage's tables, from the facts of its results.
WITH_EVERY_ROW = {
    "pretrain": lambda facts: {"architecture": facts["model"]["name"]},
    "finetune": lambda facts: {
        "head_alone": facts["recipe"]["freeze_backbone"],
        "from_epoch": math.nan if facts["from_epoch"] is None else float(facts["from_epoch"]),
    },
}


def run(task: Task) -> None:
    """Judge every claim of a study, and draw its figures (files: docs/artifacts.md).

    The summary holds one verdict per claim in `verdicts`, and verdicts on identities separately. Raises
    GranularityError: there is no such study, or its inputs (all parts of a world; `samples` and the stages that a study
    of images reads) are missing or do not belong together.
    """
    room = room_of(task.options.study)
    study = extensions.find(room, task.options.study)
    if room == "world":
        _judge_world(task, study, task.open_all("theory"))
    else:
        roles = dict.fromkeys(["samples", *(read.partition("/")[0] for read in study.READS)])
        _judge_images(task, study, {role: task.open_all(role) for role in roles})


def _judge_world(task: Task, world: ModuleType, parts: Sequence[Artifact]) -> None:
    shared = _shared(task.options.study, parts)
    settings = parts[0].json("settings.json")
    order = {item["name"]: place for place, item in enumerate(settings)}
    # Columns of a part without runs have no type.
    rows = pd.concat([rows for part in parts if len(rows := part.table("runs.parquet"))], ignore_index=True)
    by = rows["setting"].map(order).to_frame("setting").assign(seed=rows["seed"])
    rows = rows.loc[by.sort_values(["setting", "seed"], kind="stable").index].reset_index(drop=True)
    arms = {item.name: item for item in world.SIZES.get(shared["size"], ())}
    verdicts = [_with_conditions(row, arms) for row in world.judge(rows)]
    inputs = {f"part {part.facts['part']}": part for part in parts}
    with task.create(inputs, _params(task, **shared), facts=("study", "size")) as writer:
        writer.table("runs.parquet", rows)
        writer.json("settings.json", settings)
        _write(writer, verdicts, partial(_command, task.options.study, shared["size"]))
        world.figures(rows, writer.path("figures/x").parent)
        writer.summary["runs"] = sum(item["seeds"] for item in settings)
        writer.summary["diverged"] = int((rows["event"] == "diverged").sum())


def _with_conditions(one: claim.Claim, arms: Mapping[str, Any]) -> claim.Claim:
    """Return a claim with the theory's conditions on its arms; a condition is met if every arm meets it."""
    by_arm = [arms[name].conditions() for name in one.arms if name in arms]
    words = dict.fromkeys(word for conditions in by_arm for word in conditions)
    return replace(one, conditions={word: all(met.get(word, True) for met in by_arm) for word in words})


def _command(world: str, size: str, arms: Sequence[str]) -> str:
    """Return the command that trains only some arms of a world; empty if a claim is about none."""
    code = extensions.code("world", world)
    at = ["--extension", code] if code.endswith(".py") else []
    at += [] if size == "quick" else ["--size", size]
    options = [word for name in arms for word in ("--arm", name)]
    return shlex.join(["granularity", "simulate", world, *at, *options]) if arms else ""


def _shared(world: str, parts: Sequence[Artifact]) -> dict[str, Any]:
    """Return the size and settings shared by all parts of a world; each part must be there once."""
    if not parts:
        raise GranularityError(f"verdicts: the world '{world}' is judged from its trainings; give them")
    shared = {key: parts[0].facts.get(key) for key in ("size", "settings")}
    expected = {"world": world, "parts": parts[0].facts["parts"], **shared}
    for part in parts:
        if {key: part.facts.get(key) for key in expected} != expected:
            raise GranularityError(f"{part.path}: has {part.facts}, but {expected} is needed")
    numbers = [part.facts["part"] for part in parts]
    if sorted(numbers) != list(range(expected["parts"])):
        raise GranularityError(
            f"verdicts: {world} was trained in {expected['parts']} parts, but the given parts are {numbers}"
        )
    return shared


def _judge_images(task: Task, study: ModuleType, sources: Mapping[str, Sequence[Artifact]]) -> None:
    for role, opened in sources.items():
        if not opened:
            raise GranularityError(f"verdicts: '{task.options.study}' reads results of {role}; give them")
    tables = _tables(study.READS, sources, task)
    verdicts = list(study.judge(tables))
    artifacts = [source for opened in sources.values() for source in opened]
    above = os.path.commonpath([source.place.parent for source in artifacts])
    inputs = {os.path.relpath(source.place, above): source for source in artifacts}
    with task.create(inputs, _params(task), facts=("study",)) as writer:
        _write(writer, verdicts)
        if hasattr(study, "figures"):
            study.figures(tables, writer.path("figures/x").parent)


def _params(task: Task, **more: Any) -> dict[str, Any]:
    """Return the options, and digests of the papers' rows that the study or world is compared with."""
    digests = {paper: digest_of(published.file_of(paper)) for paper in papers_of(task.options.study)}
    return STAGE.asked(task.options) | more | {"published": digests}


def _tables(reads: Sequence[str], sources: Mapping[str, Sequence[Artifact]], task: Task) -> dict[str, pd.DataFrame]:
    """Return the tables that a study reads, and `samples`, each with the condition of its rows.

    Each row has its `draw` (str; "0" without draws). In a study with draws, tables have the rows of all its cells. A
    condition's name begins with the values of the axes, a run's id with its cell (cells may share a pretraining), and
    `pretrain_seed` is the draw, or a backbone of a draw, so that intervals are over these.
    """
    cells, above = task.options.cells, os.path.abspath(task.output.parent.parent)

    def cell_of(source: Artifact) -> str:
        return Path(os.path.relpath(source.place, above)).parts[0] if cells else ""

    conditions = {}
    for source in sources["samples"]:
        cell = cell_of(source)
        words = [f"{axis} {value}" for axis, value in cells.get(cell, {}).items() if axis != "draw"]
        conditions[cell, source.digest] = ", ".join([*words, source.place.parent.name])

    def of_condition(source: Artifact, file: str) -> pd.DataFrame:
        whole, cell = file.endswith(".json"), cell_of(source)
        frame = pd.json_normalize(source.json(file)) if whole else source.table(file)
        frame = frame.assign(**WITH_EVERY_ROW.get(source.kind, lambda facts: {})(source.facts))
        frame.insert(0, "condition", conditions.get((cell, source.manifest["inputs"].get("samples", {}).get("digest"))))
        frame["draw"] = draw = str(cells[cell]["draw"]) if cells else "0"
        for column in {"run_id", "parent"} & {*frame} if cells else ():
            frame[column] = cell_of(source) + "/" + frame[column]
        if cells and "pretrain_seed" in frame:
            whole_draw = task.options.unit == "draw"
            frame["pretrain_seed"] = draw if whole_draw else draw + "/" + frame["pretrain_seed"].astype(str)
        return frame

    about = []
    for source in sources["samples"]:
        row = {"condition": conditions[cell_of(source), source.digest]}
        row |= {key: source.facts[key] for key in ("source", "target")}
        classes, images = source.summary["classes"][row["target"]], source.summary["images"]["train"]
        about.append(row | {"classes": classes, "train_images": images})
    # Transfers may use the same images; of draws, which have about as many, the first.
    tables = {"samples": pd.DataFrame(about).drop_duplicates("condition", ignore_index=True)}
    for read in reads:
        role, _, file = read.partition("/")
        tables[read] = pd.concat([of_condition(source, file) for source in sources[role]], ignore_index=True)
    return tables


def _write(writer: Any, found: Sequence[claim.Claim], command: Callable[..., str] = lambda arms: "") -> None:
    writer.text("checks.csv", claim.table(found, command).to_csv(index=False, float_format="%.6g"))
    writer.summary |= {"verdicts": claim.verdicts(found), "identities": claim.verdicts(found, "identity")}
