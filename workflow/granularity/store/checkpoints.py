"""Checkpoints: arrays and a JSON text in one safetensors file, written atomically and never unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.store.generations import write_atomically

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
