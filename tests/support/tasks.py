"""Stages run in this process, from their records."""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from granularity.base.section import Section
from granularity.machine import launch
from granularity.machine.device import machine
from granularity.stages import STAGES
from granularity.store import generations
from granularity.store.artifacts import PARTS, Artifact
from granularity.store.task import Task, make

TIMED = ("report",)  # results that hold measured times


def run(
    stage: str,
    output: Path,
    options: Section | Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "cpu",
    threads: int = 1,
    anew: bool = True,
    **inputs: Path | list[Path] | None,
) -> Artifact:
    """Run a stage and open its result.

    Args:
        anew: compute it, whatever the store has; what has been made before under its key must have the same digest, and
            so must the single runs that it and other results hold.
        inputs: by role; None for none.
    """
    record = STAGES[stage]
    if not isinstance(options, record.model):
        options = record.model.model_validate(options.model_dump() if isinstance(options, Section) else options or {})
    given = {role: paths if isinstance(paths, list) else [paths] for role, paths in inputs.items() if paths is not None}
    paths = {role: tuple(map(Path, several)) for role, several in given.items()}
    processes = getattr(options, "processes", 1) * getattr(options, "arms", 1)  # as the command has it
    here = machine(device, launch.threads_each(threads, processes))
    task = Task(record, output, options, paths, seed, device, threads, here)
    if not anew:
        return make(task)
    with _runs_made_before(task), _made_before(task) as before:
        importlib.import_module(record.module).run(task)
    made = Artifact.open(output, stage)
    assert stage in TIMED or before in (None, made.digest), f"{output}: other bytes than last time"
    return made


@contextlib.contextmanager
def _made_before(task: Task) -> Iterator[str | None]:
    """Take what the store has under the key of a task out of its way, to be replaced; its digest."""
    place = generations.generation(generations.store_of(task.output), task.stage.name, task.key)
    if not place.exists():
        yield None
        return
    before = place.rename(place.with_name(f".{place.name}"))
    try:
        yield Artifact.peek(before).digest
    finally:
        if place.exists():
            shutil.rmtree(before)
        else:
            before.rename(place)


@contextlib.contextmanager
def _runs_made_before(task: Task) -> Iterator[None]:
    """Take the single runs that results hold out of their way; not those that a killed job has left."""
    if os.environ.get("RANK", "0") != "0":  # of several processes the first one does it for all
        yield
        return
    store = generations.store_of(task.output)
    held = set()
    for folder in generations.all_of(store):
        entries = Artifact.peek(folder).manifest["inputs"].values()
        held |= {(folder / entry["path"]).resolve() for entry in entries if entry["kind"] in PARTS}
    hidden = {place: place.rename(place.with_name(f".{place.name}-{secrets.token_hex(4)}")) for place in held}
    try:
        yield
    finally:
        for place, before in hidden.items():
            if place.exists():
                assert Artifact.peek(place).digest == Artifact.peek(before).digest, (
                    f"{place}: other bytes than last time"
                )
                shutil.rmtree(before)
            else:
                before.rename(place)
