"""Checkpoints: arrays and a JSON text in one safetensors file, written atomically and never unpickled."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from granularity.artifacts import write_atomically

# At most about this much work is lost to a kill; results do not depend on it.
CHECKPOINT_SECONDS = float(os.environ.get("GRANULARITY_CHECKPOINT_SECONDS", "60"))


class Clock:
    """Says when the next checkpoint is due."""

    def __init__(self):
        self._saved = time.monotonic()

    def due(self) -> bool:
        if time.monotonic() - self._saved < CHECKPOINT_SECONDS:
            return False
        self._saved = time.monotonic()
        return True


def write_state(path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
    arrays = {key: np.asarray(value, order="C") for key, value in arrays.items()}
    write_atomically(path, save(arrays, {"notes": json.dumps(notes)}))


def read_state(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """What :func:`write_state` wrote, or None where there is nothing."""
    if not path.exists():
        return None
    with safe_open(path, "numpy") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, json.loads(file.metadata()["notes"])  # noqa: SIM118
