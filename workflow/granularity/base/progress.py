"""Progress of long work: a bar in a terminal, plain lines in a log."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from granularity.base.errors import printable

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0


def track(items: Iterable[T], total: int, what: str, unit: str = "") -> Iterator[T]:
    """Pass items on and say on standard error how far it is."""
    if sys.stderr is not None and sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(items, total=total, desc=what, unit=f" {unit}" if unit else "it", dynamic_ncols=True)
        return
    started, done = time.monotonic(), 0
    tell = teller(total, what, unit)
    for done, item in enumerate(items, start=1):
        yield item
        tell(done)
    say(f"{what}: {done} of {total} {unit} in {time.monotonic() - started:.1f} s")


def teller(total: int, what: str, unit: str, begun: int = 0) -> Callable[[int], None]:
    """A function of how many are done, `begun` of them before, which says every ten seconds what time is left."""
    started = spoke = time.monotonic()

    def tell(done: int) -> None:
        nonlocal spoke
        now = time.monotonic()
        if now - spoke >= SECONDS_BETWEEN_LINES and done < total:
            left = (now - started) / (done - begun) * (total - done)
            say(f"{what}: {done} of {total} {unit}, {100 * done / total:.0f} %, about {left:.0f} s left")
            spoke = now

    return tell


def say(line: str) -> None:
    """Print one line of log. A full disk, or a reader that is gone, loses the line and not the result."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(printable(line), file=sys.stderr, flush=True)
