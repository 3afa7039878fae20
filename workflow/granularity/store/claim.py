"""Who makes a result: the writer that has claimed its key.

After a driver is killed its jobs go on, and the rerun starts the same jobs beside them; two drivers may ask for the
same result. Whoever finds a live claim waits, and takes the result that the other one makes. A claim whose writer has
died or fallen silent is taken over; should it wake, it stops at its next checkpoint and takes the other one's result.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
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
SILENT_SECONDS = 60.0  # a writer on another host that has not touched its claim for so long counts as dead
LARGEST = 65536  # bytes of a claim


class LostError(GranularityError):
    """Another writer makes this result."""


class Claim:
    """A claim on a key, `.store/.claims/KIND-KEY.json`, touched while its writer lives.

    Raises:
        LostError: a live writer has it.
    """

    def __init__(self, store: Path, kind: str, key: str, output: Path):
        self.file = claim_file(store, kind, key)
        self.output = output
        self.token = secrets.token_hex(8)
        self.asked: str | None = None  # why this process was asked to stop, once the claim was lost
        if (found := read_claim(self.file)) is not None and is_live(found):
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
        try:
            temporary.write_text(json.dumps(about), encoding="utf-8")
            temporary.replace(self.file)
        finally:
            temporary.unlink(missing_ok=True)

    def held(self) -> bool:
        """Whether nobody has claimed the output since."""
        for _ in range(READS):
            if (found := read_claim(self.file)) is not None:
                return found["token"] == self.token
            if not os.path.lexists(self.file):
                return False
            time.sleep(SECONDS_BETWEEN_READS)  # the file system is away for a moment
        return False

    def check(self) -> None:
        """Raise a LostError if the claim is lost."""
        if not self.held():
            raise LostError(self.lost())

    def lost(self) -> str:
        """A sentence that says who has the claim now."""
        return f"{self.output}: {_who(read_claim(self.file))} makes this result"

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Touch the claim while the work goes on, and ask this process to stop once it is lost."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(HEARTBEAT_SECONDS):
                if not self.held():
                    self.asked = self.lost()
                    interrupt.request(self.asked)
                    return
                with contextlib.suppress(OSError):
                    os.utime(self.file)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def release(self) -> None:
        """Take the claim away, if it is still ours; if it was lost, this process need not stop for it any more."""
        if self.asked is not None:
            interrupt.withdraw(self.asked)
        if not self.held():
            return
        aside = self.file.with_name(f".{self.file.name}-{self.token}")
        with contextlib.suppress(OSError, ValueError):
            self.file.rename(aside)
            if (read_claim(aside) or {}).get("token") != self.token:  # somebody's, of this moment
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self.file)
            aside.unlink()


def host() -> str:
    """This machine's name; under Slurm the node's, for several nodes may share a host name."""
    return os.environ.get("SLURMD_NODENAME", platform.node())


def wait(store: Path, kind: str, key: str, output: Path) -> None:
    """Wait while a live writer, other than this process, makes a result.

    A writer on another host is silent once its claim has not been touched for SILENT_SECONDS of this process's own
    clock: clocks of hosts differ.
    """
    file, said, last, since = claim_file(store, kind, key), False, None, time.monotonic()
    while (found := read_claim(file)) is not None and is_live(found, clock=False):
        if last != (found["token"], found["beat"]):
            last, since = (found["token"], found["beat"]), time.monotonic()
        if found["host"] != host() and time.monotonic() - since > SILENT_SECONDS:
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
            return
        if not said:
            say(f"{output}: {_who(found)} makes this result; waiting for it")
            said = True
        interrupt.stop_if_requested()
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _who(found: dict[str, Any] | None) -> str:
    return f"process {found['pid']} on {found['host']}" if found else "another process"


def claim_file(store: Path, kind: str, key: str) -> Path:
    return store / CLAIMS / f"{kind}-{key}.json"


def all_claims(store: Path) -> dict[str, dict[str, Any]]:
    """The claims in a store, by the name of the result that each is for (see :func:`generations.name_in`)."""
    found = filter(None, map(read_claim, sorted((store / CLAIMS).glob("*.json"))))
    return {claim["output"]: claim for claim in found}


FIELDS = {"token": str, "key": str, "output": str, "host": str, "pid": int, "job": (str, type(None))}
FIELDS |= {"started": (int, float)}


def read_claim(file: Path) -> dict[str, Any] | None:
    """A claim, with `beat`, when it was last touched (seconds since the epoch); None without a sound one."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            found = parse_json(stream.read(LARGEST), str(file))
            beat = os.fstat(stream.fileno()).st_mtime
    except (OSError, GranularityError):
        return None
    if not isinstance(found, dict) or not all(isinstance(found.get(key), kind) for key, kind in FIELDS.items()):
        return None
    if found["pid"] < 1:  # no writer's, and signals to it would go to many
        return None
    return {**found, "beat": beat}


def is_live(found: dict[str, Any], clock: bool = True) -> bool:
    """Whether the writer of a claim still works.

    On this host its process must live and not be suspended. On another one it must have touched its claim lately, by
    this host's clock, unless `clock` is false: then it counts as live.
    """
    if found["host"] != host():
        return not clock or time.time() - found["beat"] < SILENT_SECONDS
    if found["pid"] == os.getpid():  # what an earlier job in this process has left
        return False
    try:
        os.kill(found["pid"], 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        pass
    try:
        fields = Path(f"/proc/{found['pid']}/stat").read_text().rpartition(")")[2].split()
        boot = re.search(r"^btime (\d+)", Path("/proc/stat").read_text(), re.MULTILINE)
    except OSError:  # it has just ended, or there is no /proc here
        return not Path("/proc/stat").exists()
    # Process numbers are used again: one that began after the claim was made is another process.
    began = float(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in "ZXTt" and began < found["started"] + 2
