"""Stages run in this process, from their records."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from granularity.base.section import Section
from granularity.machine.device import machine
from granularity.stages import STAGES
from granularity.store.artifacts import Artifact
from granularity.store.task import Task, make


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
        anew: compute it, whatever the store has.
        inputs: by role; None for none.
    """
    record = STAGES[stage]
    if not isinstance(options, record.model):
        options = record.model.model_validate(options.model_dump() if isinstance(options, Section) else options or {})
    given = {role: paths if isinstance(paths, list) else [paths] for role, paths in inputs.items() if paths is not None}
    paths = {role: tuple(map(Path, several)) for role, several in given.items()}
    task = Task(record, output, options, paths, seed, device, threads, machine(device, threads))
    if not anew:
        return make(task)
    importlib.import_module(record.module).run(task)
    return Artifact.open(output, stage)
