"""Stages run in this process, from their records."""

import contextlib
import importlib
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from granularity import cli
from granularity.base.section import Section
from granularity.machine import launch
from granularity.machine.device import machine
from granularity.stages import STAGES
from granularity.store import place
from granularity.store.artifact import PARTS, Artifact
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
    """Run a stage and open its result; `inputs` by role.

    `anew`: compute it, whatever the store has; what has been made before under its key must have the same digest, and
    so must the single runs that it and other results hold.
    """
    record = STAGES[stage]
    if not isinstance(options, record.model):
        options = record.model.model_validate(options.model_dump() if isinstance(options, Section) else options or {})
    given = {role: paths if isinstance(paths, list) else [paths] for role, paths in inputs.items() if paths is not None}
    paths = {role: tuple(map(Path, several)) for role, several in given.items()}
    processes = getattr(options, "processes", 1)
    task = Task(record, output, options, paths, seed, device, threads, machine(device))
    if not anew:
        return make(task)
    with _out_of_its_way(task):
        if processes == 1:
            importlib.import_module(record.module).run(task)
        elif status := launch.launch(task, processes, cli.told):  # from a process that has used no threads of torch's
            sys.exit(status)
    return Artifact.open(output, stage)


def without_torch(stage: str, output: Path, options: str, **inputs: Path) -> None:
    """Run a stage with FAISS in a process without torch: faiss-gpu brings CUDA 12, torch CUDA 13 (docs/machines.md)."""
    words = [stage, *(f"--{role}={path}" for role, path in inputs.items()), "--options", options, f"--output={output}"]
    code = "import sys; from granularity import cli; cli.app(sys.argv[1:], standalone_mode=False)"
    code += "; assert 'faiss' in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, *words], check=True)


@contextlib.contextmanager
def _out_of_its_way(task: Task) -> Iterator[None]:
    """What the store has under a task's key, and the single runs that results hold: what is made anew must be alike."""
    store = place.store_of(task.output)
    held = {place.generation(store, task.stage.name, task.key)}
    for folder in place.all_of(store):
        entries = Artifact.peek(folder).manifest["inputs"].values()
        held |= {(folder / entry["path"]).resolve() for entry in entries if entry["kind"] in PARTS}
    hidden = {one: one.rename(one.with_name(f".{one.name}-{secrets.token_hex(4)}")) for one in held if one.exists()}
    try:
        yield
    finally:
        for one, before in hidden.items():
            if one.exists():
                alike = Artifact.peek(one).digest == Artifact.peek(before).digest
                assert alike or task.stage.name in TIMED, f"{one}: other bytes than last time"
                shutil.rmtree(before)
            else:
                before.rename(one)
