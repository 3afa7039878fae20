"""Files of a stage that runs in several processes: the first one writes for all."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from granularity.base import interrupt
from granularity.machine.processes import agreed, barrier, first, from_first, stopping
from granularity.store import resume, writer
from granularity.store.artifact import Artifact, key_of
from granularity.store.task import Task
from granularity.store.writer import Writer


def _by_first(made: Callable[[], Artifact | None]) -> Artifact | None:
    """Return, in all processes, the artifact that the first process finds or makes."""
    found = made() if first() else None
    there = from_first("" if found is None else str(found.path))
    return found or (Artifact.peek(there) if there else None)


def opened(task: Task, role: str) -> Artifact:
    """Open and verify a role's artifact (:meth:`Task.open`), once, in the first process."""
    return verified(task.path(role), task.kind(role))


def all_opened(task: Task, role: str) -> list[Artifact]:
    """Open and verify a role's artifacts (:meth:`Task.open_all`), once, in the first process."""
    return [verified(path, task.kind(role)) for path in task.paths(role)]


def verified(path: Path, kind: str) -> Artifact:
    """Open and verify an artifact (:meth:`Artifact.open`), once, in the first process."""
    return _by_first(lambda: Artifact.open(path, kind))


@contextlib.contextmanager
def create(task: Task, *of: Any, **how: Any) -> Iterator[Any]:
    """Write a result (:meth:`Task.create`); in all processes but the first, the writer does nothing."""
    if first():
        with task.create(*of, **how) as out:
            from_first(f"{out.work}\n{out.store}")
            yield out
    else:
        with interrupt.resumable():
            yield _Onlooker(*map(Path, from_first("").split("\n")))


class _Onlooker:
    """A writer that does nothing, because another process writes."""

    def __init__(self, work: Path, store: Path):
        self.work, self.store, self.summary, self.parts = work, store, {}, {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def find_part(store: Path, origin: Mapping[str, Any]) -> Artifact | None:
    """Find the result of a single run (:func:`writer.sound`, in the first process); None if there is none."""
    return _by_first(lambda: writer.sound(store, origin["kind"], key_of(origin)))


def keep_part(
    store: Path, origin: Mapping[str, Any], name: str, began: tuple[float, float, float], fill: Callable[[Writer], None]
) -> Artifact:
    """Publish the result of a single run (:func:`writer.keep`, in the first process)."""
    return _by_first(lambda: writer.keep(store, origin, name, began, fill))


def read_state(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Read a checkpoint (:func:`resume.read_state`), first in the first process, then in all."""
    state = resume.read_state(path) if first() else None
    barrier()
    state = state if first() else resume.read_state(path)
    barrier()
    return state


class Saver:
    """Saves checkpoints, one at a time, in the background; at the end of its context the last one is saved."""

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
        """Save a copy of a state in the first process; if any was asked to stop, end all here."""
        self._saving.result()  # raise the error of the previous save, if any
        if first():
            arrays = {name: np.array(value) for name, value in arrays.items()}
            self._saving = self._thread.submit(resume.save_state, path, arrays, copy.deepcopy(notes))
        if stopping():
            self._saving.result()
            barrier()
            interrupt.stop_if_requested()


def forget(path: Path) -> None:
    """Delete a checkpoint that is no longer needed."""
    if first():
        path.unlink(missing_ok=True)


def due(clock: resume.Clock) -> bool:
    """Return whether to save: by the first process's clock, or because any process was asked to stop."""
    return agreed((first() and clock.due()) or interrupt.requested())
