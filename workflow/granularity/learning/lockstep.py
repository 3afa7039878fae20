"""Arms in lockstep: several processes train one network each on the same images, which are read once for all.

Runs of one seed see the same batches and crops in every arm (label space). So each process reads its part of a batch,
all are given the whole of it, and each takes the step of its own network: an eighth of the reading for eight arms on
eight GPUs, and no gradient leaves a process. Beside the images they share nothing: each is, to all that trains and
saves, a single process (:func:`granularity.machine.processes.each_alone`), and learns what it would alone.

They go on step by step together, and so stop together. One that has less to do than the others (as it went on from a
later checkpoint, has finished, or failed) reads its part for them all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.machine import processes


class CannotRead(GranularityError):
    """This process cannot read its part, which the others wait for."""


_reading: _Together | None = None  # of the group of trainings that is under way


class _Together:
    """Batches that several processes read together: as a function, the whole batch of a step."""

    def __init__(self):
        self._part: Callable[[int], torch.Tensor] | None = None
        self._batch = self._steps = 0
        self._next: int | None = None

    def begin(self, part: Callable[[int], torch.Tensor], batch: int, steps: int) -> None:
        """
        Args:
            part: gives this process's share of the images of a step.
            batch: the number of images in each step.
        """
        self._part, self._batch, self._steps = part, batch, steps
        interrupt.hold(True)  # until all know, or one would stop a step before the others

    @property
    def begun(self) -> bool:
        return self._part is not None

    def __call__(self, step: int) -> torch.Tensor:
        images = None
        while images is None or self._next <= step:
            images = self._read(step)
        return images

    def finish(self) -> None:
        """Read for the others what they still need.

        Raises:
            Stopped: a process was asked to stop.
        """
        while self._next is None or self._next < self._steps:
            self._read(self._steps)
            interrupt.stop_if_requested()

    def _read(self, wanted: int) -> torch.Tensor:
        if self._next is None:  # the first that any process needs
            self._next = processes.least(wanted)
            if self._next == self._steps:
                return torch.empty(0)
        if processes.anywhere(interrupt.noted()):
            interrupt.hold(False)
        try:
            part = self._part(self._next)
        except GranularityError as error:
            raise CannotRead(*error.args) from error
        images = processes.joined(part, self._batch)
        self._next += 1
        return images


@contextlib.contextmanager
def reading() -> Iterator[_Together]:
    """The time of one training in each process: what :func:`shared` gives is read by all."""
    global _reading
    _reading = _Together()
    try:
        yield _reading
    finally:
        _reading = None
        interrupt.hold(False)


def part_of(batch: int, otherwise: slice) -> slice:
    """The part of a batch that this process is to read: its share, if the next feed is shared."""
    return processes.share_of_all(batch) if _is_shared() else otherwise


def shared(part: Callable[[int], torch.Tensor], batch: int, steps: int) -> Callable[[int], torch.Tensor]:
    """The images of each step, given what reads :func:`part_of` them; steps must be asked for in ascending order."""
    if not _is_shared():
        return part
    _reading.begin(part, batch, steps)
    return _reading


def _is_shared() -> bool:
    """Once per training: what one reads a second time, the others do not."""
    return _reading is not None and not _reading.begun
