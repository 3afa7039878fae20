"""Files of a stage that several processes run (:mod:`granularity.machine.processes`).

The first one reads and writes for all.

With one process these are the functions they are named after.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from granularity.base import interrupt
from granularity.machine.processes import anywhere, barrier, first, from_first, size
from granularity.store import checkpoints
from granularity.store.artifacts import Artifact
from granularity.store.task import Task


def open(task: Task, role: str) -> Artifact:
    """:meth:`Task.open`, by the first process for all."""
    return verified(task.path(role), task.kind(role))


def open_all(task: Task, role: str) -> list[Artifact]:
    """:meth:`Task.open_all`, by the first process for all."""
    return [verified(path, task.kind(role)) for path in task.paths(role)]


def verified(path: Path, kind: str) -> Artifact:
    """:meth:`Artifact.open`, by the first process for all."""
    artifact = Artifact.open(path, kind) if first() else None
    barrier()
    return artifact or Artifact.peek(path)


@contextlib.contextmanager
def create(
    task: Task,
    inputs: Mapping[str, Artifact],
    params: Mapping[str, Any],
    facts: Sequence[str] = (),
    resumable: bool = False,
) -> Iterator[Any]:
    """:meth:`Task.create`; in all processes but the first, the writer writes nothing."""
    with task.create(inputs, params, facts, resumable) if first() else _onlooker() as out:
        yield out


@contextlib.contextmanager
def _onlooker() -> Iterator[Any]:
    with interrupt.resumable():
        yield _Onlooker()


class _Onlooker:
    """A writer where another process writes."""

    def __init__(self):
        self.work, self.summary = Path(os.devnull), {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def read_state(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """:func:`checkpoints.read_state`, by the first process for all."""
    return from_first(lambda: checkpoints.read_state(path))


def write_state(path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
    """:func:`checkpoints.write_state`, by the first process; if any was asked to stop, all end here."""
    if size() == 1:
        checkpoints.write_state(path, arrays, notes)
        return
    anywhere(interrupt.requested())
    try:
        if first():
            checkpoints.write_state(path, arrays, notes)
    finally:
        barrier()
    interrupt.stop_if_requested()


class Saver:
    """Saves checkpoints while the work goes on, one at a time; a context, at whose end the last one is saved.

    If any process was asked to stop, all end once what they save is saved.
    """

    def __init__(self):
        self._thread, self._saving = ThreadPoolExecutor(1), Future()
        self._saving.set_result(None)

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()
        if error == (None, None, None):
            self._saving.result()

    def __call__(self, path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
        """Save a copy of a state, as :func:`checkpoints.save` does."""
        self._saving.result()  # or raise what went wrong with the one before
        if first():
            arrays = {name: np.array(value) for name, value in arrays.items()}
            self._saving = self._thread.submit(checkpoints.save, path, arrays, copy.deepcopy(notes))
        if size() > 1:
            anywhere(interrupt.requested())
        if interrupt.requested():
            try:
                self._saving.result()
            finally:
                barrier()
            interrupt.stop_if_requested()


def forget(path: Path) -> None:
    """Delete a checkpoint that is not needed any more."""
    if first():
        path.unlink(missing_ok=True)


def due(clock: checkpoints.Clock) -> bool:
    """Whether to save: it is time by the first process's clock, or any process was asked to stop."""
    if size() == 1:
        return clock.due()
    return anywhere(clock.due() if first() else False, interrupt.requested())
