"""Time and memory that a call may take."""

import contextlib
import re
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

SECONDS = 5.0  # of processor time
PATIENCE = 120  # seconds of the clock, which a machine under load may take; who waits for ever is stopped
MEGABYTES = 500
ROOM = 8 << 30  # bytes of addresses; a call that asks for more gets a MemoryError, and the machine stays whole


@contextlib.contextmanager
def bounded(seconds: float = SECONDS, megabytes: float = MEGABYTES) -> Iterator[None]:
    """Raise an AssertionError if what is done within takes more processor time, or more memory than there was."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before, size, limits = _status("VmRSS"), _status("VmSize"), resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(PATIENCE)
    resource.setrlimit(resource.RLIMIT_AS, (int(size * 1e6) + ROOM, limits[1]))
    started = time.process_time()
    try:
        yield
    finally:
        taken = time.process_time() - started
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    grown = _status("VmHWM") - before
    assert taken <= seconds, f"{taken:.1f} s of processor time"
    assert grown <= megabytes, f"{grown:.0f} MB more memory"


def _too_long(*_: object) -> None:
    raise AssertionError(f"still at it after {PATIENCE} s")


def _status(key: str) -> float:
    """Megabytes, by the kernel."""
    return int(re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1]) * 1024 / 1e6
