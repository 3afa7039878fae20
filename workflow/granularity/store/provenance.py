"""What a manifest says of the software and the machine."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

PACKAGES = (
    "granularity",
    "snakemake",
    "torch",
    "torchvision",
    "timm",
    "open_clip_torch",
    "faiss-cpu",
    "faiss-gpu",
)
PACKAGES += ("numpy", "scipy", "pandas", "pyarrow", "scikit-learn", "safetensors", "pillow", "matplotlib")


@functools.cache
def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that this project uses, where installed."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def hardware() -> dict[str, Any]:
    """Processor, cores, system; threads and GPU as well where torch has been used."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    found: dict[str, Any] = {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
    }
    torch = sys.modules.get("torch")  # never imported for this: a stage without it need not wait for it
    if torch is not None:
        found["threads"] = torch.get_num_threads()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["gpu"] = torch.cuda.get_device_name()
    return found


def gpu_memory() -> dict[str, float]:
    """The most memory that torch's tensors took on one GPU in this process; nothing where torch used no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return {}
    peak = max(torch.cuda.max_memory_allocated(index) for index in range(torch.cuda.device_count()))
    return {"gpu_peak_memory_mb": round(peak / 2**20, 1)}
