"""Reading images ahead of the network: processes that decode and crop, and a copy to the device meanwhile.

What comes out is a function of the seed, the step and the place in the batch alone: not of the number of readers, nor
of where a training was resumed. The readers are those of torch's DataLoader. They are processes, as Pillow decodes one
JPEG at a time per process, and policies of libraries draw from the one generator of a process. They are told piece by
piece what to read, so that all of them work on the next batch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from granularity.base.errors import GranularityError
from granularity.machine import pipeline, processes

PIECE = 64  # images that a reader reads at once, at most
AHEAD = 2  # pieces that each reader is told of
MOST_READERS = 16
SHARED = "/dev/shm"  # where readers put images
PR_SET_PDEATHSIG = 1

View = Callable[[int, int, int], np.ndarray]  # row of the sample table, step, place in the batch -> uint8 [H, W, C]


def readers(device: torch.device) -> int:
    """The number of processes that read: GRANULARITY_READERS, or the CPUs that a training leaves; 0 for none.

    Args:
        device: what the training computes on; on CPUs, it takes as many as torch has threads.

    Raises:
        GranularityError: GRANULARITY_READERS is no such number.
    """
    asked = os.environ.get("GRANULARITY_READERS")
    if asked is None:
        busy = 1 if device.type == "cuda" else torch.get_num_threads()
        return max(0, min(MOST_READERS, len(os.sched_getaffinity(0)) // processes.local_size() - busy))
    if not asked.isdecimal() or int(asked) > 1000:
        raise GranularityError(f"GRANULARITY_READERS: {asked!r} must be a number of processes, 0 to 1000")
    return int(asked)


class Feed:
    """Batches of images, step after step: feed(step) is uint8 [B, H, W, C] on the device.

    Args:
        view: reads an image; it is called in the readers.
        rows_of: row numbers of the images of a step.
        steps: how many there are.
        shape: of one image, (H, W, C).
        first_place: the place in the batch of the first of these images.
    """

    def __init__(
        self,
        view: View,
        rows_of: Callable[[int], np.ndarray],
        steps: int,
        shape: tuple[int, int, int],
        device: torch.device,
        first_place: int = 0,
    ):
        self._rows_of, self._steps, self._shape = rows_of, steps, shape
        self._readers = readers(device)
        self._piece = _piece(int(np.prod(shape)), self._readers)
        self._pieces = _Pieces(view, first_place)
        self._copy, self._pinned = pipeline.copier(device), device.type == "cuda"
        self._buffer = torch.empty(0, *shape, dtype=torch.uint8)
        self._sizes: dict[int, int] = {}
        self._next = -1
        self._iterator: list[Iterator[Any]] = []  # a box: emptied when this is forgotten, which ends the readers
        weakref.finalize(self, self._iterator.clear)

    def __call__(self, step: int) -> torch.Tensor:
        """The images of a step; reading goes on with the steps that follow it.

        Raises:
            GranularityError: an image cannot be read, or a reader was killed.
        """
        if step != self._next:
            self._begin(step)
        found: torch.Tensor | None = None
        filled = 0
        while found is None or filled < len(found):
            part = self._part()
            if found is None:
                found = self._room(self._sizes.pop(step))
            found[filled : filled + len(part)] = part
            filled += len(part)
        self._next = step + 1
        if self._next == self._steps:
            self._iterator.clear()
            self._next = -1
        return self._copy(found)

    def _begin(self, step: int) -> None:
        self._iterator.clear()  # and with it, its readers
        self._sizes.clear()
        more = {}
        if self._readers:
            parent = os.getpid()
            more = {"multiprocessing_context": "fork", "worker_init_fn": lambda number: _become_reader(parent)}
            more |= {"prefetch_factor": AHEAD}
        # Neither may refer to this object, or it would never be forgotten.
        requests = _requests(self._rows_of, step, self._steps, self._piece, self._sizes)
        own = torch.Generator()  # or it would draw from that of the training
        loader = DataLoader(
            self._pieces,
            batch_size=None,
            sampler=requests,
            num_workers=self._readers,
            generator=own,
            **more,
        )
        with _signal_kept(signal.SIGCHLD):
            self._iterator.append(iter(loader))

    def _part(self) -> torch.Tensor:
        try:
            part = next(self._iterator[0])
        except RuntimeError as error:  # torch's, of a reader that has died
            why = str(error).partition(". ")[0]
            raise GranularityError(
                f"a process that reads images has ended ({why}); what is saved is kept. If memory is short, set "
                "GRANULARITY_READERS to fewer processes"
            ) from error
        if isinstance(part, str):
            raise GranularityError(part)
        return part

    def _room(self, images: int) -> torch.Tensor:
        """Room for a batch: for a GPU the same each time, which it copies from by itself."""
        if not self._pinned:
            return torch.empty(images, *self._shape, dtype=torch.uint8)
        if len(self._buffer) < images:
            self._buffer = torch.empty(images, *self._shape, dtype=torch.uint8, pin_memory=True)
        return self._buffer[:images]


@contextmanager
def _signal_kept(number: signal.Signals) -> Iterator[None]:
    """What the main thread does at a signal stays: torch's own handler would raise the death of a reader anywhere."""
    before = signal.getsignal(number)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(number, before)


def _requests(
    rows_of: Callable[[int], np.ndarray], first: int, steps: int, piece: int, sizes: dict[int, int]
) -> Iterator[tuple[int, int, np.ndarray]]:
    """What the readers are asked for: step, place and rows of each piece; the sizes of the steps are noted."""
    for step in range(first, steps):
        rows = np.asarray(rows_of(step))
        sizes[step] = len(rows)
        for start in range(0, len(rows), piece):
            yield step, start, rows[start : start + piece]


class _Pieces(Dataset):
    """Some images of a step, given what to read: uint8 [n, H, W, C]; or, of an error, its line."""

    def __init__(self, view: View, first_place: int):
        self.view, self.first_place = view, first_place

    def __getitem__(self, request: tuple[int, int, np.ndarray]) -> torch.Tensor | str:
        step, start, rows = request
        places = range(self.first_place + start, self.first_place + start + len(rows))
        try:
            views = [self.view(int(row), step, place) for row, place in zip(rows, places, strict=True)]
        except GranularityError as error:  # torch would make a page of it
            return str(error)
        return torch.from_numpy(np.stack(views))


def _piece(image_bytes: int, readers: int) -> int:
    """How many images a reader reads at once: what all have ready takes half of the shared memory at most."""
    try:
        found = os.statvfs(SHARED)
    except OSError:
        return PIECE
    room = found.f_bavail * found.f_frsize // 2
    return max(1, min(PIECE, room // (image_bytes * max(1, readers) * (AHEAD + 1))))


def _become_reader(parent: int) -> None:
    """In a reader: end with the training, however it ends, and leave signals to it; it says when all is saved."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
