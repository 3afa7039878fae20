"""Leases of GPUs on one machine: each GPU has one, which the kernel takes back when its holder dies.

Snakemake counts GPUs but hands none out: of two jobs side by side, both would compute on the first. A process
therefore leases devices before CUDA starts, and names them in CUDA_VISIBLE_DEVICES, which CUDA reads when it starts.
A lease is a shared flock(2) on a file of the device; whoever looks for free devices first locks a file of its own, the
queue, so nobody else takes one meanwhile, and a job that needs several waits while those it found stay free.

The files lie in GRANULARITY_LEASES, by default a folder of the user's own in /tmp, which must be local to the machine
(as the folder for temporary files that a cluster gives a job may not be). A Slurm job has devices that are its own,
whatever their numbers: it shares leases only with itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.progress import say

INFORMATION = Path("/proc/driver/nvidia/gpus")
SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_OF_SILENCE = 1.0  # a queue that moves on is not worth a line

_held: dict[str, int] = {}  # device -> the open file that is locked


def candidates() -> list[str]:
    """The devices that this process may use: those of CUDA_VISIBLE_DEVICES, else all of the machine."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(index) for index in range(machine_gpus())]
    found: list[str] = []
    for device in (part.strip() for part in named.split(",")):
        if not device or device in ("-1", "NoDevFiles"):  # CUDA reads no further, either
            break
        found.append(device)
    return list(dict.fromkeys(found))


def machine_gpus() -> int:
    """Count the machine's GPUs without starting CUDA here, which would not read CUDA_VISIBLE_DEVICES again."""
    if shutil.which("nvidia-smi") is None:
        return len(list(Path("/dev").glob("nvidia[0-9]*")))
    return len(_gpus())


def models() -> list[str]:
    """The models of the machine's GPUs, each once, as its driver names them."""
    named = (
        re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE) for file in INFORMATION.glob("*/information")
    )
    return sorted({found[1].strip() for found in named if found}) or ["unknown"]


@functools.cache
def _gpus() -> dict[str, str]:
    """Index and UUID of the machine's GPUs, as nvidia-smi tells them."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return {}
    rows = [[cell.strip() for cell in line.split(",")] for line in asked.stdout.splitlines()]
    return {row[0]: row[-1] for row in rows if row[0].isdigit()} if asked.returncode == 0 else {}


def wanted() -> int:
    """The number of devices that GRANULARITY_GPUS gives to a job that can use several."""
    text = os.environ.get("GRANULARITY_GPUS", "1")
    if not text.isdecimal() or int(text) < 1:
        raise GranularityError(f"GRANULARITY_GPUS = {text}: must be a number of GPUs, at least 1")
    return int(text)


def take(count: int = 1) -> list[str]:
    """Lease devices for this process until it ends, and make them the only ones that CUDA sees.

    Waits while too few are free, and says so. A process that holds leases keeps those.

    Raises:
        GranularityError: there are not that many devices.
    """
    if not _held:
        with queue():
            for device in free(count):
                hold(device)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_held)
    return list(_held)


def release() -> None:
    """Give back what this process holds; needed only where it goes on without."""
    while _held:
        os.close(_held.popitem()[1])


@contextlib.contextmanager
def queue() -> Iterator[None]:
    """Wait for one's turn to look for free devices."""
    file = _open("queue")
    try:
        _wait(lambda: _lock(file, fcntl.LOCK_EX), lambda: "waiting for a GPU, after other jobs that wait for one")
        yield
    finally:
        os.close(file)


def enough(count: int) -> list[str]:
    """The candidates, or a GranularityError if they are fewer than asked for."""
    known = candidates()
    if count > len(known):
        raise GranularityError(f"{count} GPUs are asked for, but there are only {len(known)} ({','.join(known)})")
    return known


def free(count: int) -> list[str]:
    """Wait until enough devices are free; call it, and lease them, within :func:`queue`."""
    known = enough(count)

    def found() -> list[str] | None:
        now = [device for device in known if not _is_leased(device)]
        return now[:count] if len(now) >= count else None

    def why() -> str:
        holders = sorted({_holder(device) for device in known} - {""})
        return f"waiting for {count} of {len(known)} GPUs; they are leased by the processes {', '.join(holders)}"

    return _wait(found, why)


def hold(device: str) -> None:
    """Lease a device that :func:`free` found, until this process ends or :func:`release`."""
    file = _open(_name(device))
    if not _lock(file, fcntl.LOCK_SH):
        raise GranularityError(f"GPU {device}: its lease was taken meanwhile; are its lock files on a local disk?")
    os.ftruncate(file, 0)
    os.pwrite(file, str(os.getpid()).encode(), 0)
    _held[device] = file


def _is_leased(device: str) -> bool:
    if device in _held:
        return False
    file = _open(_name(device))
    try:
        return not _lock(file, fcntl.LOCK_EX)
    finally:
        os.close(file)


def _holder(device: str) -> str:
    file = _open(_name(device))
    try:
        return "" if _lock(file, fcntl.LOCK_EX) else os.pread(file, 20, 0).decode()
    finally:
        os.close(file)


def _wait(look: Callable, why: Callable[[], str]):
    """What `look` finds, as soon as it is anything; says once why it takes long."""
    started, silent = time.monotonic(), True
    while not (found := look()):
        if silent and time.monotonic() - started >= SECONDS_OF_SILENCE:
            say(why())
            silent = False
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return found


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise GranularityError(
            f"cannot lock leases of GPUs ({error.strerror}); set GRANULARITY_LEASES to a folder on a local disk"
        ) from None
    return True


def _open(name: str) -> int:
    """An open lock file. Python closes it in programs that this one starts, which so never inherit a lease."""
    folder = Path(os.environ.get("GRANULARITY_LEASES") or Path("/tmp", f"granularity-{os.getuid()}"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.lstat().st_uid != os.getuid():
            raise GranularityError(f"{folder}: belongs to somebody else; set GRANULARITY_LEASES to a folder of yours")
        return os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise GranularityError(
            f"{folder}: cannot keep leases of GPUs ({error.strerror}); set GRANULARITY_LEASES to a folder of yours"
        ) from None


def _name(device: str) -> str:
    scope = os.environ.get("SLURM_JOB_ID")
    if device.startswith("GPU-"):  # the beginning of a UUID: the same device as its index
        device = next((index for index, uuid in _gpus().items() if uuid.startswith(device)), device)
    return urllib.parse.quote(f"slurm-{scope}-{device}" if scope else f"gpu-{device}", safe="")
