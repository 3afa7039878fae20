"""Files of a stage that several processes run (:mod:`granularity.machine.processes`).

The first one reads and writes for all.

With one process these are the functions they are named after.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from granularity.base import interrupt
from granularity.machine.processes import anywhere, barrier, first, from_first, rank, received, sent, size
from granularity.store import checkpoints, chunks, generations, writer
from granularity.store.artifacts import Artifact, key_of
from granularity.store.task import Task
from granularity.store.writer import Writer


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
    with task.create(inputs, params, facts, resumable) if first() else _onlooker(task) as out:
        yield out


@contextlib.contextmanager
def _onlooker(task: Task) -> Iterator[Any]:
    with interrupt.resumable():
        yield _Onlooker(generations.store_of(task.output))


class _Onlooker:
    """A writer where another process writes."""

    def __init__(self, store: Path):
        self.work, self.store, self.summary, self.parts = Path(os.devnull), store, {}, {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def write_ranges(
    out: Any,
    name: str,
    total: int,
    compute: Callable[[chunks.Ranges], Iterable[np.ndarray]],
    batch: int,
    chunk: int,
    what: str,
) -> np.ndarray | None:
    """:func:`chunks.write_ranges`, by the first process; each computes some batches.

    Batch k of what is missing is computed by process k modulo their number, and all go on together: at each turn they
    tell each other whether one was asked to stop. So every range has the rows that one process would give it.

    Returns:
        The array, in the first process.
    """
    if size() == 1:
        return chunks.write_ranges(out, name, total, compute, batch, chunk, what)
    turn = batch * size()
    if first():
        chunk = -(-chunk // turn) * turn
        return chunks.write_ranges(
            out, name, total, lambda ranges: _in_turns(ranges, compute, batch), turn, chunk, what
        )
    for _ in _in_turns([], compute, batch):
        interrupt.stop_if_requested()
    return None


def _in_turns(
    ranges: chunks.Ranges, compute: Callable[[chunks.Ranges], Iterable[np.ndarray]], batch: int
) -> Iterator[np.ndarray]:
    """The rows of each range, in the first process; in the others, theirs."""
    _, ranges = from_first(lambda: ({}, ranges))
    turns = [[(a, min(a + batch, stop)) for a in range(start, stop, batch)] for start, stop in ranges]
    mine = iter(compute([turn[rank()] for turn in turns if rank() < len(turn)]))
    for turn in turns:
        found = [next(mine)] if rank() < len(turn) else []
        for other in range(1, len(turn)):
            if first():
                start, stop = turn[other]
                found.append(received((stop - start, *found[0].shape[1:]), found[0].dtype, other))
            elif other == rank():
                sent(found[0])
        anywhere(interrupt.requested())
        yield np.concatenate(found) if first() else np.empty(0)


def find_part(store: Path, origin: Mapping[str, Any]) -> Artifact | None:
    """:func:`writer.sound`, by the first process for all: the result of a single run, None where there is none."""
    kind, key = origin["kind"], key_of(origin)
    found = writer.sound(store, kind, key) if first() else None
    there = from_first(lambda: ({}, str(found.folder) if found is not None else ""))[1]
    return found or (Artifact.peek(there) if there else None)


def keep_part(
    store: Path, origin: Mapping[str, Any], name: str, began: tuple[float, float, float], fill: Callable[[Writer], None]
) -> Artifact:
    """:func:`writer.keep`, by the first process for all."""
    made = writer.keep(store, origin, name, began, fill) if first() else None
    barrier()
    return made or Artifact.peek(generations.generation(store, origin["kind"], key_of(origin)))


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
