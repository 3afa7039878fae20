"""Show the progress of long work: a bar in a terminal, plain lines in a log."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from granularity.base.errors import printable

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0


class _Loop:
    """A running loop of :func:`track`; `together`: how many of its items are being processed at once."""

    def __init__(self, total: int, words: str):
        self.done, self.total, self.words, self.together = 0, total, words, 1


_under_way: list[_Loop] = []


def together(items: int) -> None:
    """Tell the enclosing loop how many of its items are being processed at once."""
    if _under_way:
        _under_way[-1].together = items


def track(items: Iterable[T], total: int, what: str, unit: str = "") -> Iterator[T]:
    """Yield the items and show progress on standard error."""
    if sys.stderr is not None and sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(items, total=total, desc=what, unit=f" {unit}" if unit else "it", dynamic_ncols=True)
        return
    started, tell, loop = time.monotonic(), teller(total, what, unit), _Loop(total, f"{what}: {{}} of {total} {unit}")
    _under_way.append(loop)
    try:
        for item in items:
            yield item
            loop.done += 1
            tell(loop.done)
    finally:
        _under_way.remove(loop)
    say(f"{loop.words.format(loop.done)} in {time.monotonic() - started:.1f} s")


def teller(total: int, what: str, unit: str, begun: int = 0) -> Callable[[int], None]:
    """Return a function that takes the number done (`begun` initially) and prints every ten seconds the time left.

    Within a loop of :func:`track`, this is the time until that loop ends, if its other items take as long.
    """
    started = spoke = time.monotonic()
    around = _under_way[-1] if _under_way else None

    def tell(done: int) -> None:
        nonlocal spoke
        now = time.monotonic()
        if now - spoke >= SECONDS_BETWEEN_LINES and done < total:
            pace, more = (now - started) / (done - begun), ""
            left = pace * (total - done)
            if around is not None:
                after = max(0, around.total - around.done - around.together)
                left += pace * total * after / around.together
                more = f"; {around.words.format(around.done)}"
            say(f"{what}: {done} of {total} {unit}, {100 * done / total:.0f} %{more}, about {left:.0f} s left")
            spoke = now

    return tell


def say(line: str) -> None:
    """Print one line of log. If the disk is full or the reader gone, lose the line rather than the result."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(printable(line), file=sys.stderr, flush=True)
