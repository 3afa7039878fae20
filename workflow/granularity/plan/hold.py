"""One name has one configuration at a time.

Snakemake locks the folder that it is started in. Two checkouts whose `results` is one folder would otherwise lead the
names of one configuration to results of two, each finding what the other has just made to be outdated.

The lock is the kernel's, so it ends with the process that holds it, however that ends. Drivers of one configuration
share it: they wait for each other's results (:mod:`granularity.store.claim`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.plan.graph import Plan
from granularity.store import claim, generations
from granularity.store.manifests import canonical_json

DRIVER = ".driver-"  # and the name: a file in the store
LARGEST = 1 << 20  # bytes that are read of what drivers have written


def hold(plan: Plan, root: Path) -> None:
    """Hold the name of a configuration until this process ends.

    Args:
        root: the folder of its results.

    Raises:
        GranularityError: drivers of another configuration hold it.
    """
    store = generations.store_of(root)
    file = store / f"{DRIVER}{root.name}"
    mine = {
        "configuration": hashlib.sha256(canonical_json(plan.config.model_dump(mode="json")).encode()).hexdigest(),
        "host": claim.host(),
        "pid": os.getpid(),
        "started": time.time(),
        "folder": os.getcwd(),
    }
    try:
        store.mkdir(parents=True, exist_ok=True)
        # Never closed: the lock is to last as long as this process.
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        with contextlib.suppress(PermissionError):  # another one's
            os.fchmod(handle, store.stat().st_mode & 0o666)  # for all who may write in the store
        drivers = _share(handle, mine)
    except OSError as error:
        say(
            f"{file}: cannot be locked ({error.strerror or error}); start no other configuration of this name meanwhile"
        )
        return
    # Who wrote first decides: of two that begin at the same moment, both see the same line first.
    holding = [one for one in drivers if one["configuration"] == drivers[0]["configuration"]]
    if mine not in holding:
        one = next((one for one in reversed(holding) if not _has_ended(one)), holding[-1])
        os.close(handle)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["started"]))
        raise GranularityError(
            f"{root}: another configuration of this name is being made by process {one['pid']} on {one['host']}, since "
            f"{since}, in {one['folder']}; wait for its end, or give this one another name: --config name=..."
        )


def _share(handle: int, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """Share the lock with those who hold it; returns what they have written of themselves, and oneself, in order."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)  # nobody holds it: what is written there is of drivers that have ended
    except BlockingIOError:
        pass
    fcntl.flock(handle, fcntl.LOCK_SH)
    os.write(handle, f"{json.dumps(mine)}\n".encode())
    return [found for line in os.pread(handle, LARGEST, 0).splitlines() if (found := _driver(line))]


def _driver(line: bytes) -> dict[str, Any] | None:
    """One line; None where it is no driver's."""
    try:
        found = json.loads(line)
        return found if found.keys() >= {"configuration", "host", "pid", "started", "folder"} else None
    except (ValueError, AttributeError):
        return None


def _has_ended(one: dict[str, Any]) -> bool:
    """Whether a driver is seen to have ended: who shared the lock may have gone before those who still hold it."""
    return one["host"] == claim.host() and os.path.isdir("/proc/self") and not os.path.isdir(f"/proc/{one['pid']}")
