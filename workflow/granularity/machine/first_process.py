"""Files of a stage that several processes run: the first one writes for all."""

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
    """What the first process finds or makes, for all."""
    found = made() if first() else None
    there = from_first("" if found is None else str(found.path))
    return found or (Artifact.peek(there) if there else None)


def opened(task: Task, role: str) -> Artifact:
    """:meth:`Task.open`, by the first process for all."""
    return verified(task.path(role), task.kind(role))


def all_opened(task: Task, role: str) -> list[Artifact]:
    """:meth:`Task.open_all`, by the first process for all."""
    return [verified(path, task.kind(role)) for path in task.paths(role)]


def verified(path: Path, kind: str) -> Artifact:
    """:meth:`Artifact.open`, by the first process for all."""
    return _by_first(lambda: Artifact.open(path, kind))


@contextlib.contextmanager
def create(task: Task, *of: Any, **how: Any) -> Iterator[Any]:
    """:meth:`Task.create`; in all processes but the first, the writer writes nothing."""
    if first():
        with task.create(*of, **how) as out:
            from_first(f"{out.work}\n{out.store}")
            yield out
    else:
        with interrupt.resumable():
            yield _Onlooker(*map(Path, from_first("").split("\n")))


class _Onlooker:
    """A writer where another process writes."""

    def __init__(self, work: Path, store: Path):
        self.work, self.store, self.summary, self.parts = work, store, {}, {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def find_part(store: Path, origin: Mapping[str, Any]) -> Artifact | None:
    """:func:`writer.sound`, by the first process for all: the result of a single run, None where there is none."""
    return _by_first(lambda: writer.sound(store, origin["kind"], key_of(origin)))


def keep_part(
    store: Path, origin: Mapping[str, Any], name: str, began: tuple[float, float, float], fill: Callable[[Writer], None]
) -> Artifact:
    """:func:`writer.keep`, by the first process for all."""
    return _by_first(lambda: writer.keep(store, origin, name, began, fill))


def read_state(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """:func:`resume.read_state`, by the first process and then by all."""
    state = resume.read_state(path) if first() else None
    barrier()
    state = state if first() else resume.read_state(path)
    barrier()
    return state


def write_state(path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
    """:func:`resume.write_state`, by the first process; if any was asked to stop, all end here."""
    if first():
        resume.save_state(path, arrays, notes)
    stopping()
    interrupt.stop_if_requested()


class Saver:
    """Saves checkpoints while the work goes on, one at a time; a context, at whose end the last one is saved."""

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
        """Save a copy of a state, as :func:`write_state` does."""
        self._saving.result()  # or raise what went wrong with the one before
        if first():
            arrays = {name: np.array(value) for name, value in arrays.items()}
            self._saving = self._thread.submit(resume.save_state, path, arrays, copy.deepcopy(notes))
        if stopping():
            self._saving.result()
            barrier()
            interrupt.stop_if_requested()


def forget(path: Path) -> None:
    """Delete a checkpoint that is not needed any more."""
    if first():
        path.unlink(missing_ok=True)


def due(clock: resume.Clock) -> bool:
    """Whether to save: it is time by the first process's clock, or any process was asked to stop."""
    return agreed((first() and clock.due()) or interrupt.requested())
