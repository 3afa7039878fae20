"""Stage `verdicts`: what papers claim, held against what was measured, of one world or one study of images."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import pandas as pd

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import claim, preregistered, published
from granularity.stages.verdicts.options import papers_of, room_of
from granularity.store.artifacts import Artifact
from granularity.store.hashing import digest_of
from granularity.store.task import Task

# Columns that tables of a stage are given beside their own, from what its results say of themselves.
WITH_EVERY_ROW = {
    "pretrain": lambda facts: {"architecture": facts["model"]["name"]},
    "finetune": lambda facts: {
        "head_alone": facts["recipe"]["freeze_backbone"],
        "from_epoch": math.nan if facts["from_epoch"] is None else float(facts["from_epoch"]),
    },
}


def run(task: Task) -> None:
    """Judge every claim of a study, and draw its figures.

    Files: ``checks.csv`` (one row per claim's quantity, see :meth:`granularity.claims.claim.Claim.row`) and
    ``figures/*.svg``; of a world also ``runs.parquet`` (the run table of all its parts) and ``settings.json``. The
    summary holds one verdict per claim in `verdicts`, and those of identities apart.

    Args:
        task: `options` is an :class:`granularity.stages.verdicts.options.Options`. Of a world, the inputs are all parts
            of its trainings, role `theory`; of a study of images, `samples` and the stages that it reads.

    Raises:
        GranularityError: there is no such study, or its inputs are missing or do not belong together.
    """
    name = task.options.study
    room = room_of(name)
    study = extensions.find(room, name)
    if room == "world":
        _judge_world(task, study, task.open_all("theory"))
    else:
        roles = dict.fromkeys(["samples", *(read.partition("/")[0] for read in study.READS)])
        _judge_images(task, study, {role: task.open_all(role) for role in roles})


def _judge_world(task: Task, world: ModuleType, parts: Sequence[Artifact]) -> None:
    shared = _shared(task.options.study, parts)
    settings = parts[0].json("settings.json")
    order = {item["name"]: place for place, item in enumerate(settings)}
    # A part without runs has columns without a type.
    rows = pd.concat([rows for part in parts if len(rows := part.table("runs.parquet"))], ignore_index=True)
    by = rows["setting"].map(order).to_frame("setting").assign(seed=rows["seed"])
    rows = rows.loc[by.sort_values(["setting", "seed"], kind="stable").index].reset_index(drop=True)
    at_run = shared["preregistration"]
    now = {"preregistration": at_run or "", "changed": at_run != preregistered.digest_of(task.options.study)}
    arms = {item.name: item for item in world.SIZES.get(shared["size"], ())}
    found = [replace(_with_conditions(one, arms), **now) for one in world.judge(rows)]
    whole = (f"all {len(arms)} arms",)
    if at_run:  # a prediction that names no arms is about all of them
        found = [one if one.arms or not len(one.values) else replace(one, arms=whole) for one in found]
    params = task.options.model_dump(mode="json") | shared
    inputs, params = {f"part {part.facts['part']}": part for part in parts}, params | _published(task)
    with task.create(inputs, params, facts=("study", "size")) as writer:
        writer.table("runs.parquet", rows)
        writer.json("settings.json", settings)
        every = ["snakemake", f"theory_{task.options.study}"]
        every += [] if shared["size"] == "quick" else ["--config", f"theory={{size: {shared['size']}}}"]
        own = partial(_command, task.options.study, shared["size"])
        _write(writer, found, lambda names: shlex.join(every) if names == whole else own(names))
        world.figures(rows, writer.path("figures/x").parent)
        writer.summary["runs"] = sum(item["seeds"] for item in settings)
        writer.summary["diverged"] = int((rows["event"] == "diverged").sum())


def _with_conditions(one: claim.Claim, arms: Mapping[str, Any]) -> claim.Claim:
    """A claim with the conditions of the theory behind its arms; one is met where every arm meets it."""
    each = [arms[name].conditions() for name in one.arms if name in arms]
    words = dict.fromkeys(word for conditions in each for word in conditions)
    return replace(one, conditions={word: all(met.get(word, True) for met in each) for word in words})


def _command(world: str, size: str, arms: Sequence[str]) -> str:
    """What trains some arms of a world alone; empty where a claim is about none."""
    given = [word for name in arms for word in ("--arm", name)]
    at = [] if size == "quick" else ["--size", size]
    return shlex.join(["granularity", "simulate", world, *at, *given]) if arms else ""


def _shared(world: str, parts: Sequence[Artifact]) -> dict[str, Any]:
    """Size and settings of a world's parts.

    Raises:
        GranularityError: parts are missing, given twice, or of several worlds, sizes or settings.
    """
    if not parts:
        raise GranularityError(f"verdicts: the world '{world}' is judged from its trainings, but none are given")
    first = parts[0].facts
    same = ("size", "settings", "parts", "preregistration")
    wanted = {"world": world, **{key: first.get(key) for key in same}}
    for part in parts:
        if {key: part.facts.get(key) for key in wanted} != wanted:
            raise GranularityError(f"{part.path}: is of {part.facts}, and does not belong to {wanted}")
    if sorted(part.facts["part"] for part in parts) != list(range(first["parts"])):
        given = [part.facts["part"] for part in parts]
        raise GranularityError(f"verdicts: {world} was trained in {first['parts']} parts, but those given are {given}")
    return {key: wanted[key] for key in ("size", "settings", "preregistration")}


def _judge_images(task: Task, study: ModuleType, sources: Mapping[str, Sequence[Artifact]]) -> None:
    for role, opened in sources.items():
        if not opened:
            raise GranularityError(f"verdicts: '{task.options.study}' reads results of {role}, but none are given")
    tables = _tables(study.READS, sources)
    found = list(study.judge(tables))
    every = [source for opened in sources.values() for source in opened]
    above = os.path.commonpath([source.place.parent for source in every])
    inputs = {os.path.relpath(source.place, above): source for source in every}
    params = task.options.model_dump(mode="json") | _published(task)
    with task.create(inputs, params, facts=("study",)) as writer:
        _write(writer, found)
        if hasattr(study, "figures"):
            study.figures(tables, writer.path("figures/x").parent)


def _published(task: Task) -> dict[str, Any]:
    """The digests of the papers' rows that a study or world is held against, as a parameter."""
    return {"published": {paper: digest_of(published.file_of(paper)) for paper in papers_of(task.options.study)}}


def _tables(reads: Sequence[str], sources: Mapping[str, Sequence[Artifact]]) -> dict[str, pd.DataFrame]:
    """The tables that a study is given, see :mod:`granularity.stages.verdicts.studies`."""
    conditions = {source.digest: source.place.parent.name for source in sources["samples"]}

    def of_condition(source: Artifact, file: str) -> pd.DataFrame:
        whole = file.endswith(".json")
        frame = pd.json_normalize(source.json(file)) if whole else source.table(file)
        frame = frame.assign(**WITH_EVERY_ROW.get(source.kind, lambda facts: {})(source.facts))
        frame.insert(0, "condition", conditions.get(source.manifest["inputs"].get("samples", {}).get("digest")))
        return frame

    about = [
        {
            "condition": conditions[source.digest],
            "source": source.facts["source"],
            "target": source.facts["target"],
            "classes": source.summary["classes"][source.facts["target"]],
            "train_images": source.summary["images"]["train"],
        }
        for source in sources["samples"]
    ]
    tables = {"samples": pd.DataFrame(about).drop_duplicates(ignore_index=True)}  # transfers may be to the same images
    for read in reads:
        role, _, file = read.partition("/")
        tables[read] = pd.concat([of_condition(source, file) for source in sources[role]], ignore_index=True)
    return tables


def _write(
    writer: Any, found: Sequence[claim.Claim], command: Callable[[Sequence[str]], str] = lambda arms: ""
) -> None:
    writer.text("checks.csv", claim.table(found, command).to_csv(index=False, float_format="%.6g"))
    writer.summary |= {"verdicts": claim.verdicts(found), "identities": claim.verdicts(found, "identity")}
