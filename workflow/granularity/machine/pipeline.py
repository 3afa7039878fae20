"""Batches made ready while the one before is worked on: by threads, in a few buffers, and copied to a GPU meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch

AHEAD = 2  # batches that are made ready while one is worked on
THREADS = "filling"  # name of the threads


def filled(
    ranges: Iterable[tuple[int, int]],
    buffer: Callable[[], torch.Tensor],
    fill: Callable[[int, np.ndarray], None],
    threads: int,
) -> Iterator[tuple[int, torch.Tensor]]:
    """Fill batches by threads, in order; yields how many rows of a batch are filled, and the batch.

    A batch is valid until the next is asked for. What goes wrong with an item is raised in its turn: when all batches
    before its own have been yielded.

    Args:
        ranges: (first item, last + 1) of each batch, at most as many as a buffer has rows.
        buffer: makes a buffer on the CPU, of zeros; ``AHEAD + 1`` are made.
        fill: writes an item into its row.
    """
    free: list[torch.Tensor] = []
    waiting: deque[tuple[torch.Tensor, list[Future]]] = deque()

    def ready() -> tuple[torch.Tensor, list[Future]]:
        batch, items = waiting.popleft()
        for item in items:
            item.result()
        return batch, items

    pool = ThreadPoolExecutor(threads, THREADS)
    try:
        for start, stop in ranges:
            if len(waiting) == AHEAD + 1:
                batch, items = ready()
                yield len(items), batch
                free.append(batch)
            batch = free.pop() if free else buffer()
            rows = batch.numpy()
            waiting.append((batch, [pool.submit(fill, i, rows[i - start]) for i in range(start, stop)]))
        while waiting:
            batch, items = ready()
            yield len(items), batch
    finally:
        pool.shutdown(cancel_futures=True)


def copier(place: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that copies batches to a device: to a GPU, on a stream of its own, beside what is computed there.

    When it returns, the batch may be filled anew. On the CPU it gives the batch itself.
    """
    if place.type != "cuda":
        return lambda batch: batch
    import torch

    side = torch.cuda.Stream(place)

    def copied(batch: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(side):
            there = batch.to(place, non_blocking=True)
        side.synchronize()  # waits for the copy alone, not for what is computed
        there.record_stream(torch.cuda.current_stream(place))
        return there

    return copied


def brought(results: Iterable[torch.Tensor], place: torch.device) -> Iterator[torch.Tensor]:
    """Results on the CPU: from a GPU, each is awaited when the next batch is under way."""
    if place.type != "cuda":
        yield from results
        return
    import torch

    before: tuple[torch.Tensor, torch.cuda.Event] | None = None
    for result in results:
        copied = torch.cuda.Event()
        here = result.to("cpu", non_blocking=True)
        copied.record(torch.cuda.current_stream(place))
        if before is not None:
            before[1].synchronize()
            yield before[0]
        before = here, copied
    if before is not None:
        before[1].synchronize()
        yield before[0]
