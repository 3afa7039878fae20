"""How the granularity of pretraining labels decides what a network learns: the stages of the workflow."""

import os
import sys

from granularity.machine import torchvision_compat

if sys.platform == "win32":
    raise SystemExit("granularity: Windows has no file locks as results need them; use WSL (wsl --install)")
if not hasattr(os, "sched_getaffinity"):  # macOS
    os.sched_getaffinity = lambda process: set(range(os.cpu_count() or 1))
    os.environ.setdefault("GRANULARITY_READERS", "0")  # processes that read images for a training need Linux

torchvision_compat.before_torchvision()
