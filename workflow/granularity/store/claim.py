"""Who may publish an artifact: the writer that claimed it last.

After a driver is killed its jobs go on, and the rerun starts the same jobs beside them. Each writer therefore works
under a name of its own and first writes its claim beside the output; the latest claim is the one that counts. A writer
that has lost its claim stops at its next checkpoint and publishes nothing, whatever the scheduler believes.
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

HEARTBEAT_SECONDS = 10.0
READS, SECONDS_BETWEEN_READS = 4, 0.5
SILENT_SECONDS = 60.0  # a writer on another host that has not touched its claim for so long counts as dead


class Claim:
    """A claim on an output folder: `.NAME.claim` beside it, touched while its writer lives."""

    def __init__(self, output: Path, key: str):
        self.output = output
        self.token = secrets.token_hex(8)
        self.file = claim_file(output)
        about = {
            "token": self.token,
            "key": key,
            "host": host(),
            "pid": os.getpid(),
            "job": os.environ.get("SLURM_JOB_ID"),
            "started": time.time(),
        }
        temporary = self.file.with_name(f"{self.file.name}-{self.token}")
        try:
            temporary.write_text(json.dumps(about), encoding="utf-8")
            temporary.replace(self.file)
        finally:
            temporary.unlink(missing_ok=True)

    def held(self) -> bool:
        """Whether nobody has claimed the output since."""
        for _ in range(READS):
            if (found := read_claim(self.output)) is not None:
                return found["token"] == self.token
            if not os.path.lexists(self.file):
                return False
            time.sleep(SECONDS_BETWEEN_READS)  # the file system is away for a moment
        return False

    def check(self) -> None:
        """Raise a GranularityError if the claim is lost."""
        if not self.held():
            raise GranularityError(self.lost())

    def lost(self) -> str:
        """A sentence that says who has the claim now."""
        found = read_claim(self.output) or {}
        who = f"process {found['pid']} on {found['host']}" if found else "another process"
        return f"{self.output}: {who} has taken over this artifact; this one stops and publishes nothing"

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Touch the claim while the work goes on, and ask this process to stop once it is lost."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(HEARTBEAT_SECONDS):
                if not self.held():
                    interrupt.request(self.lost())
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
        """Take the claim away, if it is still ours."""
        if not self.held():
            return
        aside = self.file.with_name(f"{self.file.name}-{self.token}")
        with contextlib.suppress(OSError, ValueError):
            self.file.rename(aside)
            if json.loads(aside.read_text(encoding="utf-8"))["token"] != self.token:  # somebody's, of this moment
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self.file)
            aside.unlink()


def host() -> str:
    """This machine's name; under Slurm the node's, for several nodes may share a host name."""
    return os.environ.get("SLURMD_NODENAME", platform.node())


def claim_file(output: Path) -> Path:
    return output.parent / f".{output.name}.claim"


def read_claim(output: Path) -> dict[str, Any] | None:
    """The claim on an output, with `beat`, when it was last touched (seconds since the epoch); None without one."""
    file = claim_file(output)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        beat = file.stat().st_mtime
    except (OSError, ValueError, RecursionError):
        return None
    whole = isinstance(found, dict) and found.keys() >= {"token", "key", "host", "pid", "job", "started"}
    return {**found, "beat": beat} if whole else None


def is_live(found: dict[str, Any]) -> bool:
    """Whether the writer of a claim still works: by its process on this host, by the last touch on another one."""
    if found["host"] != host():
        return time.time() - found["beat"] < SILENT_SECONDS
    try:
        os.kill(found["pid"], 0)
    except ProcessLookupError:
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
    return fields[0] not in "ZX" and began < found["started"] + 2
