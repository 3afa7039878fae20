"""Locks: one process at a time computes a result (by its key); Snakemake processes share a configuration's name.

If the file system has no locks, or a writer is suspended, the last touch of the lock file counts
(docs/artifacts.md). Two writers of one key do no harm: the first result stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import secrets
import threading
import time
from pathlib import Path
from typing import Any

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import say

BEAT_SECONDS, SILENT_SECONDS, LOOK_SECONDS = 10.0, 60.0, 0.5
FORM = {"token": str, "output": str, "host": str, "pid": int, "started": int | float}


class LostError(GranularityError):
    """Raised if another process is computing this result."""


class Lock:
    """The lock of a key, held while its process lives or the context lasts. Raise LostError if it is taken."""

    def __init__(self, file: Path, output: str):
        self.file, self._token, self._ended = file, secrets.token_hex(8), threading.Event()
        self._asked = f"another process has taken over {output}, because this one was silent"
        if (holder := read(file)) is not None and holder["live"] is not False:
            raise LostError(f"{output}: {who(holder)} is making this result")
        about = {"token": self._token, "output": output, "host": host(), "pid": os.getpid()}
        about |= {"job": os.environ.get("SLURM_JOB_ID"), "started": time.time()}
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{self._token}")
        self._stream = temporary.open("x", encoding="utf-8")
        try:
            # Lock before the file gets its final name, so that nobody sees it unlocked.
            locked = _flock(self._stream.fileno(), fcntl.LOCK_EX)
            self._stream.write(json.dumps({**about, "kernel": _kernel() if locked else None}))
            self._stream.flush()
            os.fchmod(self._stream.fileno(), 0o644)  # everyone who may work in the store must be able to read it
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            if self.held():
                with contextlib.suppress(OSError, ValueError):
                    os.utime(self._stream.fileno())
            else:  # stop this process, because both would save to the same place
                return interrupt.request(self._asked)

    def held(self) -> bool:
        """Return whether no other process has taken the lock over."""
        return (read(self.file) or {}).get("token") == self._token

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        interrupt.withdraw(self._asked)
        if self.held():
            self.file.unlink(missing_ok=True)
        self._stream.close()


def read(file: Path) -> dict[str, Any] | None:
    """Read a lock file; add when it was last touched (`beat`) and whether its writer lives (`live`; None: unknown)."""
    try:
        with file.open("rb") as stream:
            record = json.loads(stream.read())
            beat = os.fstat(stream.fileno()).st_mtime
            free = _flock(stream.fileno(), fcntl.LOCK_SH)  # until the file is closed; others may check at the same time
        if not all(isinstance(record[name], kind) for name, kind in FORM.items()):
            return None
    except (OSError, ValueError, TypeError, KeyError):  # torn
        return None
    tells = free is False or (free and record.get("kernel") == _kernel())
    return {**record, "beat": beat, "live": not free if tells else None}


def wait(file: Path, output: Path) -> None:
    """Wait while another process computes a result; if it gives no sign of life, remove its lock."""
    last, looks, told = None, 0, False
    while (holder := read(file)) is not None and holder["live"] is not False:
        if not told:
            say(
                f"{output}: {who(holder)} is making it; waiting (you may stop it: this process then "
                "continues from its saved work)"
            )
            told = True
        looks, last = (looks + 1 if holder == last else 0), holder
        if looks * LOOK_SECONDS >= SILENT_SECONDS:
            say(f"{output}: {who(holder)} has given no sign of life for {SILENT_SECONDS:.0f} s; continuing without it")
            with contextlib.suppress(OSError):
                file.unlink()
            return
        time.sleep(LOOK_SECONDS)


def all_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the locks in a folder, also those of killed writers, by file name without suffix."""
    found = {file.stem: read(file) for file in sorted(folder.glob("*.json"))}
    return {name: one for name, one in found.items() if one is not None}


def living(folder: Path) -> set[str]:
    """Return the names of the locks whose writers live; takes up to SILENT_SECONDS if a kernel lock cannot decide."""
    locks = {name: holder for name, holder in all_in(folder).items() if holder["live"] is not False}
    unknown = {name: holder for name, holder in locks.items() if holder["live"] is None}
    if unknown:
        names = ", ".join(sorted({who(holder) for holder in unknown.values()}))
        say(f"checking for up to {SILENT_SECONDS:.0f} s whether these still run: {names}")
    for _ in range(round(SILENT_SECONDS / LOOK_SECONDS)):
        if unknown:
            time.sleep(LOOK_SECONDS)
            unknown = {name: holder for name, holder in unknown.items() if read(folder / f"{name}.json") == holder}
    return locks.keys() - unknown.keys()


def seems_alive(found: dict[str, Any]) -> bool:
    """Return whether a writer seems alive from one look; without a kernel lock, by this host's clock."""
    return time.time() - found["beat"] < SILENT_SECONDS if found["live"] is None else found["live"]


def who(found: dict[str, Any]) -> str:
    return f"process {found['pid']} on {found['host']}"


def host() -> str:
    """Return this machine's name; under Slurm the node's, because several nodes may share a host name."""
    return os.environ.get("SLURMD_NODENAME", platform.node())


def _kernel() -> str:
    """Return an ID of the running kernel: the same in all its containers, different on every other machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _flock(descriptor: int, how: int) -> bool | None:
    """Lock a file without waiting; return whether that worked, or None if the file system has no locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


def share(file: Path, mine: str) -> dict[str, Any] | None:
    """Hold the lock of a name until this process ends. Return a holder that uses another configuration, else None."""
    about = {"for": mine, "host": host(), "pid": os.getpid(), "started": time.time(), "folder": os.getcwd()}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Not closed once locked, because the lock must last as long as this process.
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(PermissionError):  # belongs to another user
            os.fchmod(handle, file.parent.stat().st_mode & 0o666)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)  # nobody holds it: its lines are from processes that have ended
        fcntl.flock(handle, fcntl.LOCK_SH)
        os.write(handle, f"{json.dumps(about)}\n".encode())
        # The first line decides: two processes that start at the same moment see the same first line.
        records = [json.loads(line) for line in os.pread(handle, 1 << 20, 0).splitlines()]
    except (OSError, ValueError) as error:  # ValueError: a torn line
        reason = getattr(error, "strerror", None) or error
        say(f"{file}: cannot be locked ({reason}); start no other configuration of this name until this one ends")
        return None
    if records[0]["for"] == mine:
        return None
    os.close(handle)
    return [record for record in records if record["for"] == records[0]["for"]][-1]
