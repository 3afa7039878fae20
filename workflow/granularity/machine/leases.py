"""Lease a machine's GPUs by locks on files, which the kernel releases when the holder dies (docs/jobs.md).

A process leases devices before CUDA starts and names them in CUDA_VISIBLE_DEVICES, which CUDA then reads. Before it
takes devices it locks a further file, the queue, so that jobs that need several do not block each other. A Slurm job
owns its devices, whatever their numbers, so it shares leases only with itself.
"""

import functools
import os
import re
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from granularity.base.errors import GranularityError
from granularity.base.progress import say

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_OF_SILENCE = 1.0  # a short wait needs no message

_held: dict[str, FileLock] = {}  # by device


def candidates() -> list[str]:
    """Return the devices that this process may use: those in CUDA_VISIBLE_DEVICES, or all of the machine."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(index) for index in range(machine_gpus())]
    found: list[str] = []
    for device in (part.strip() for part in named.split(",")):
        if not device or device in ("-1", "NoDevFiles"):  # CUDA, too, stops reading here
            break
        found.append(device)
    return list(dict.fromkeys(found))


@functools.cache
def listed() -> list[list[str]] | None:
    """Return index, UUID and model of the machine's GPUs without starting CUDA, or None without `nvidia-smi`.

    CUDA reads CUDA_VISIBLE_DEVICES only once, when it starts.
    """
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    rows = [[part.strip() for part in line.split(",", 2)] for line in lines]
    return [row for row in rows if len(row) == 3 and row[0].isdigit()]


def machine_gpus() -> int:
    """Count the machine's GPUs."""
    return len(list(Path("/dev").glob("nvidia[0-9]*"))) if (rows := listed()) is None else len(rows)


def models() -> list[str]:
    """Return the models of the GPUs that this process may use, without repetition; of all, if these are not known."""
    rows, own = listed() or [], candidates()
    found = {model for index, uuid, model in rows for one in own if one == index or uuid.startswith(one)}
    if not (found := found or {model for *_, model in rows}):  # no nvidia-smi: what the driver says
        texts = (file.read_text() for file in Path("/proc/driver/nvidia/gpus").glob("*/information"))
        named = (re.search(r"^Model:\s*(.+)$", text, re.MULTILINE) for text in texts)
        found = {one[1].strip() for one in named if one}
    return sorted(found) or ["unknown"]


def wanted() -> int:
    """Return the number of GPUs for a job that can use several (GRANULARITY_GPUS)."""
    text = os.environ.get("GRANULARITY_GPUS", "1")
    if not text.isdecimal() or int(text) < 1:
        raise GranularityError(f"GRANULARITY_GPUS = {text}: must be a number of GPUs, at least 1")
    return int(text)


def take(count: int = 1) -> list[str]:
    """Lease devices until this process ends, waiting until enough are free. Raise GranularityError if too few exist."""
    if not _held:
        gpus = candidates()
        if count > len(gpus):
            raise GranularityError(f"{count} GPUs were requested, but there are only {len(gpus)} ({','.join(gpus)})")
        queue = _wait(lambda: _acquired("queue"), "waiting for a GPU, behind other waiting jobs")
        try:
            message = f"waiting for {count} of {len(gpus)} GPUs, leased by other jobs"
            _wait(lambda: _hold_free(gpus, count), message)
        finally:
            queue.release()
    held = [device for device in candidates() if device in _held]
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # so that CUDA counts as nvidia-smi does
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(held)
    return held


def release() -> None:
    """Release this process's leases; needed only if it continues without them."""
    while _held:
        _held.popitem()[1].release()


def _hold_free(known: list[str], count: int) -> bool:
    """Lease devices that are free; return whether there are enough now."""
    for device in known:
        if len(_held) < count and device not in _held and (lock := _acquired(device)):
            _held[device] = lock
    return len(_held) == count


def _wait(found: Callable[[], Any], what: str) -> Any:
    started, silent = time.monotonic(), True
    while not (got := found()):
        if silent and time.monotonic() - started >= SECONDS_OF_SILENCE:
            say(what)
            silent = False
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return got


def _acquired(device: str) -> FileLock | None:
    folder = Path(os.environ.get("GRANULARITY_LEASES") or f"/tmp/granularity-{os.getuid()}")
    scope = f"slurm-{job}" if (job := os.environ.get("SLURM_JOB_ID")) else "gpu"
    file = folder / urllib.parse.quote(f"{scope}-{device}.lock", safe="")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.lstat().st_uid != os.getuid():
            raise GranularityError(f"{folder}: belongs to another user; set GRANULARITY_LEASES to a folder of yours")
        lock = FileLock(file, mode=0o600, thread_local=False, fallback_to_soft=False)
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except OSError as error:
        why = f"{folder}: cannot lock GPU leases ({error.strerror})"
        raise GranularityError(f"{why}; set GRANULARITY_LEASES to a folder on a local disk") from None
    return lock
