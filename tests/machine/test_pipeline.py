"""Batches that are made ready ahead: their order, how many there are at once, and errors in their turn."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from granularity.machine.pipeline import AHEAD, THREADS, filled

RANGES = [(0, 4), (4, 8), (20, 23), (23, 24), (24, 28), (28, 32)]


class Source:
    """Items that are their own number; counts buffers, and knows which items were filled."""

    def __init__(self, broken: int | None = None):
        self.broken, self.buffers, self.filled, self.lock = broken, 0, [], threading.Lock()

    def buffer(self) -> torch.Tensor:
        self.buffers += 1
        return torch.zeros(4, 2)

    def fill(self, item: int, row: np.ndarray) -> None:
        if item == self.broken:
            raise LookupError(item)
        row[:] = item
        with self.lock:
            self.filled.append(item)

    def batches(self, threads: int):
        return filled(RANGES, self.buffer, self.fill, threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_come_in_order_and_whole(threads):
    source = Source()
    for (start, stop), (count, batch) in zip(RANGES, source.batches(threads), strict=True):
        assert batch[:count, 1].tolist() == list(range(start, stop)) and batch.shape == (4, 2)
    assert source.buffers == AHEAD + 1


def test_no_more_is_made_ready_than_there_are_buffers_for():
    """With a thread that is never slower than who asks."""
    source = Source()
    for number, _ in enumerate(source.batches(1)):
        started = sum(stop - start for start, stop in RANGES[: number + 1 + AHEAD])
        assert len(source.filled) <= started


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_in_its_turn_and_ends_the_work(threads):
    source = Source(broken=22)
    found = []
    with pytest.raises(LookupError):
        for count, _ in source.batches(threads):
            found.append(count)
    assert found == [4, 4]  # those before
    assert max(source.filled) < 32  # what comes after is not begun
    assert not [one for one in threading.enumerate() if one.name.startswith(THREADS)]


def test_who_stops_asking_ends_the_work():
    source = Source()
    batches = source.batches(1)
    next(batches)
    batches.close()
    assert not [one for one in threading.enumerate() if one.name.startswith(THREADS)]
