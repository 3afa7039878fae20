"""How the granularity of pretraining labels decides what a network learns: the stages of the workflow.

From Python: `open_artifact`, `label_spaces`, `labels`, `runs` and `backbone`, of :mod:`granularity.look.api`.
"""

import os
import sys
from typing import Any

from granularity.base import kernels
from granularity.machine import torchvision_compat

__all__ = ["backbone", "label_spaces", "labels", "open_artifact", "runs"]

if sys.platform == "win32":
    raise SystemExit("granularity: Windows has no file locks as results need them; use WSL (wsl --install)")
if not hasattr(os, "sched_getaffinity"):  # macOS
    os.sched_getaffinity = lambda process: set(range(os.cpu_count() or 1))
    os.environ.setdefault("GRANULARITY_READERS", "0")  # processes that read images for a training need Linux

kernels.pin()  # before anything here imports a library that chooses its loops
torchvision_compat.before_torchvision()


def __getattr__(name: str) -> Any:  # what they need takes a second to import
    if name not in __all__:
        raise AttributeError(f"module 'granularity' has no attribute '{name}'")
    from granularity.look import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
