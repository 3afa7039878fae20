"""Checkpoints: arrays and a JSON text in one safetensors file, written atomically and never unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.store.generations import write_atomically

Arrays = Mapping[str, np.ndarray]

# At most about this much work is lost to a kill; results do not depend on it.
try:
    CHECKPOINT_SECONDS = float(os.environ.get("GRANULARITY_CHECKPOINT_SECONDS", "60"))
except ValueError:
    raise GranularityError("GRANULARITY_CHECKPOINT_SECONDS: must be a number of seconds") from None


class Clock:
    """Says when the next checkpoint is due."""

    def __init__(self):
        self._saved = time.monotonic()

    def due(self) -> bool:
        if time.monotonic() - self._saved < CHECKPOINT_SECONDS and not interrupt.requested():
            return False
        self._saved = time.monotonic()
        return True


class Parts:
    """Long work in parts, in one file: parts that are done are not done again, and one that was under way goes on."""

    def __init__(self, path: Path | None):
        """Find what was done before.

        Args:
            path: the file; None to keep nothing.
        """
        arrays, notes = (path and read_state(path)) or ({}, {})
        self._path, self._clock, self._name = path, Clock(), notes.get("part")
        self._done = {key[5:]: value for key, value in arrays.items() if key[:5] == "done/"}
        self._begun = {key[6:]: value for key, value in arrays.items() if key[:6] == "begun/"}

    def part(self, name: str, work: Callable[[Arrays | None, Callable[[Callable[[], Arrays]], None]], Any]) -> Any:
        """What a part of the work gives, an array.

        Args:
            work: a function of the state that it is to go on from (None: from the start), and of a function to be
                called where it can be interrupted, with a function that gives its state.
        """
        if name in self._done:
            return self._done[name]

        def save(state: Callable[[], Arrays]) -> None:
            if self._path is not None and self._clock.due():
                arrays = {f"done/{key}": value for key, value in self._done.items()}
                write_state(self._path, arrays | {f"begun/{k}": v for k, v in state().items()}, {"part": name})

        begun = self._begun if name == self._name else None
        self._begun, self._name = {}, None
        self._done[name] = work(begun, save)
        return self._done[name]


def write_state(path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
    """Save a checkpoint; if the process was asked to stop, it ends here."""
    save(path, arrays, notes)
    interrupt.stop_if_requested()


def save(path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
    """Save a checkpoint, whole or not at all."""
    arrays = {key: np.asarray(value, order="C") for key, value in arrays.items()}
    text = json.dumps(notes)
    write_atomically(path, safetensors.numpy.save(arrays, {"notes": text, "sha256": _digest(arrays, text)}))


def read_state(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Read what :func:`write_state` wrote; None where there is nothing sound: then the work is done again."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "numpy") as file:
            arrays, about = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
        if about["sha256"] == _digest(arrays, about["notes"]):
            return arrays, json.loads(about["notes"])
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError):
        pass
    say(f"{path}: a corrupt checkpoint; this part is done again")
    path.unlink(missing_ok=True)
    return None


def _digest(arrays: dict[str, np.ndarray], notes: str) -> str:
    digest = hashlib.sha256(notes.encode())
    for key in sorted(arrays):
        digest.update(f"{key} {arrays[key].dtype} {arrays[key].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[key]).data)
    return digest.hexdigest()
