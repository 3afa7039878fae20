"""Files of a stage that several processes run (:mod:`granularity.machine.processes`).

The first one reads and writes for all.

With one process these are the functions they are named after.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from granularity.base import interrupt
from granularity.machine.processes import anywhere, barrier, first, from_first, size
from granularity.store import artifacts, checkpoints
from granularity.store.artifacts import Artifact


def verified(path: Path, kind: str) -> Artifact:
    """:meth:`Artifact.open`, by the first process for all."""
    artifact = Artifact.open(path, kind) if first() else None
    barrier()
    return artifact or Artifact.peek(path)


@contextlib.contextmanager
def create(*args, **kwargs) -> Iterator[Any]:
    """:func:`artifacts.create`; in all processes but the first, the writer writes nothing."""
    with artifacts.create(*args, **kwargs) if first() else _onlooker() as out:
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
    """:func:`state.read_state`, by the first process for all."""
    return from_first(lambda: checkpoints.read_state(path))


def write_state(path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
    """:func:`state.write_state`, by the first process; if any was asked to stop, all end here."""
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


def forget(path: Path) -> None:
    """Delete a checkpoint that is not needed any more."""
    if first():
        path.unlink(missing_ok=True)


def due(clock: checkpoints.Clock) -> bool:
    """Whether to save: it is time by the first process's clock, or any process was asked to stop."""
    if size() == 1:
        return clock.due()
    return anywhere(clock.due() if first() else False, interrupt.requested())
