"""Who makes a result: the writer that has claimed its key.

After a driver is killed its jobs go on, and the rerun starts the same jobs beside them; two drivers may ask for the
same result. Whoever finds a live claim waits, and takes the result that the other one makes. A claim whose writer has
died or fallen silent is taken over; should it wake, it stops at its next checkpoint and takes the other one's result.

A writer locks its claim, and its kernel lets go of the lock when it ends, however it ends. Within one kernel nothing
else tells whether it lives: process numbers mean nothing to other containers and users, and clocks are set. To others a
free lock says nothing, as some file systems keep locks within a machine, or have none. They watch the claim: a writer
that does not touch it for SILENT_SECONDS has died, or is suspended, which no lock tells.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.strict_json import parse_json
from granularity.store.generations import CLAIMS, name_in

HEARTBEAT_SECONDS = 10.0
READS, SECONDS_BETWEEN_READS = 4, 0.5
SECONDS_BETWEEN_LOOKS = 0.5
SILENT_SECONDS = 60.0
LARGEST = 65536  # bytes of a claim


class LostError(GranularityError):
    """Another writer makes this result."""


class Claim:
    """A claim on a key, `.store/.claims/KIND-KEY.json`, locked and touched while its writer lives.

    Raises:
        LostError: a writer has it that is not known to be dead.
    """

    def __init__(self, store: Path, kind: str, key: str, output: Path):
        self.file = claim_file(store, kind, key)
        self.output = output
        self.token = secrets.token_hex(8)
        self.asked: str | None = None  # why this process was asked to stop, once the claim was lost
        self._works = False
        self._ended = threading.Event()
        if (found := read_claim(self.file)) is not None and found["live"] is not False:
            raise LostError(self.lost())
        about = {
            "token": self.token,
            "key": key,
            "output": name_in(store, output),
            "host": host(),
            "pid": os.getpid(),
            "job": os.environ.get("SLURM_JOB_ID"),
            "started": time.time(),
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_name(f".{self.file.name}-{self.token}")
        self._stream = temporary.open("x", encoding="utf-8")
        try:
            # Before it has its name: nobody can look at a claim that is not locked yet.
            locked = _lock(self._stream.fileno(), fcntl.LOCK_EX)
            self._stream.write(json.dumps({**about, "kernel": _kernel() if locked else None}))
            self._stream.flush()
            os.fchmod(self._stream.fileno(), 0o644)  # whoever may work in the store must see who else does
            temporary.replace(self.file)
        finally:
            temporary.unlink(missing_ok=True)
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def held(self) -> bool:
        """Whether nobody has claimed the output since."""
        for _ in range(READS):
            if (found := read_claim(self.file)) is not None:
                return found["token"] == self.token
            if not os.path.lexists(self.file):
                return False
            time.sleep(SECONDS_BETWEEN_READS)  # the file system is away for a moment
        return False

    def lost(self) -> str:
        """A sentence that says who has the claim now."""
        return f"{self.output}: {_who(read_claim(self.file))} makes this result"

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """While the work goes on, ask this process to stop once the claim is lost."""
        self._works = True
        try:
            yield
        finally:
            self._works = False

    def _beat(self) -> None:
        """Touch the claim until it is released: what was computed takes minutes to hash, where it is large."""
        while not self._ended.wait(HEARTBEAT_SECONDS):
            if self.held():
                with contextlib.suppress(OSError):
                    os.utime(self._stream.fileno())
            elif self._works and self.asked is None:
                self.asked = self.lost()
                interrupt.request(self.asked)

    def release(self) -> None:
        """Take the claim away, if it is still ours; if it was lost, this process need not stop for it any more."""
        self._ended.set()
        self._beats.join()
        if self.asked is not None:
            interrupt.withdraw(self.asked)
        if self.held():
            _take_away(self.file, self.token)
        self._stream.close()


def host() -> str:
    """This machine's name; under Slurm the node's, for several nodes may share a host name."""
    return os.environ.get("SLURMD_NODENAME", platform.node())


def _kernel() -> str:
    """A name of the running kernel: the same in all its containers, and another one in every other machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _lock(descriptor: int, how: int) -> bool | None:
    """Lock a file without waiting: whether nobody had locked it; None where the file system has no locks.

    By `flock`, whose locks belong to the open file: one of `lockf` ends when the process closes any other one.
    """
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


def wait(store: Path, kind: str, key: str, output: Path) -> None:
    """Wait while a writer makes a result, and take its claim away if it falls silent."""
    file, last, looks = claim_file(store, kind, key), None, 0
    while (found := read_claim(file)) is not None and found["live"] is not False:
        if last is None:
            hint = "" if found["live"] else f"; if you know that it is dead, delete {file}"
            say(f"{output}: {_who(found)} makes this result; waiting for it{hint}")
        # Counted by looks: while this process is suspended itself, it sees no beats.
        last, looks = found, looks + 1 if found == last else 0
        if looks * SECONDS_BETWEEN_LOOKS > SILENT_SECONDS:
            _take_away(file, found["token"])
            return
        interrupt.stop_if_requested()
        time.sleep(SECONDS_BETWEEN_LOOKS)


def dead(store: Path) -> set[Path]:
    """The files of claims that have no living writer; looks for SILENT_SECONDS where no lock tells."""
    looks = {file: read_claim(file) for file in (store / CLAIMS).glob("*")}
    unknown = {file: found for file, found in looks.items() if found and found["live"] is None}
    if unknown:
        who = ", ".join(sorted({_who(found) for found in unknown.values()}))
        say(f"looking for up to {SILENT_SECONDS:.0f} s whether this still works: {who}")
    for _ in range(round(SILENT_SECONDS / SECONDS_BETWEEN_LOOKS)):
        if unknown:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            unknown = {file: found for file, found in unknown.items() if read_claim(file) == found}
    return {file for file, found in looks.items() if found is None or found["live"] is False} | unknown.keys()


def _who(found: dict[str, Any] | None) -> str:
    return f"process {found['pid']} on {found['host']}" if found else "another process"


def _take_away(file: Path, token: str) -> None:
    """Delete a claim; one that somebody has put in its place this moment stays."""
    aside = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    with contextlib.suppress(OSError):
        file.rename(aside)
        if (read_claim(aside) or {}).get("token") != token:
            with contextlib.suppress(FileExistsError):
                os.link(aside, file)
        aside.unlink()


def claim_file(store: Path, kind: str, key: str) -> Path:
    return store / CLAIMS / f"{kind}-{key}.json"


def all_claims(store: Path) -> dict[str, dict[str, Any]]:
    """The claims in a store, by the name of the result that each is for (see :func:`generations.name_in`)."""
    found = filter(None, map(read_claim, sorted((store / CLAIMS).glob("*.json"))))
    return {claim["output"]: claim for claim in found}


FIELDS = {"token": str, "key": str, "output": str, "host": str, "pid": int, "job": (str, type(None))}
FIELDS |= {"started": (int, float)}


def read_claim(file: Path) -> dict[str, Any] | None:
    """A claim; None without a sound one.

    With `beat`, when it was last touched (seconds since the epoch), and `live`: whether its writer lives, by its lock;
    None where the lock does not tell.
    """
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            found = parse_json(stream.read(LARGEST), str(file))
            beat = os.fstat(stream.fileno()).st_mtime
            free = _lock(stream.fileno(), fcntl.LOCK_SH)  # for this moment, and shared: who else looks sees no writer
    except (OSError, GranularityError):
        return None
    if not isinstance(found, dict) or not all(isinstance(found.get(key), kind) for key, kind in FIELDS.items()):
        return None
    tells = free is False or (free and found.get("kernel") == _kernel())
    return {**found, "beat": beat, "live": not free if tells else None}


def is_live(found: dict[str, Any]) -> bool:
    """Whether the writer of a claim still works, as far as one look tells: by this host's clock where no lock does."""
    return time.time() - found["beat"] < SILENT_SECONDS if found["live"] is None else found["live"]
