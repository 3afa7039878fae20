"""Reading images ahead of the network, by seed, step and place alone, in processes: torch's DataLoader."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from granularity.base.errors import GranularityError
from granularity.machine import processes

PIECE = 64  # images that a reader reads at once, at most
AHEAD = 2  # pieces queued per reader
MOST_READERS = 16
SHARED = "/dev/shm"  # where readers put images
PR_SET_PDEATHSIG = 1

View = Callable[[int, int, int], np.ndarray]  # row of the sample table, step, place in the batch -> uint8 [H, W, C]


def readers(device: torch.device) -> int:
    """The number of processes that read: GRANULARITY_READERS, or the CPUs that a training leaves; 0 for none. Raises
    GranularityError if GRANULARITY_READERS is no such number.
    """
    asked = os.environ.get("GRANULARITY_READERS")
    if asked is None:
        busy = 1 if device.type == "cuda" else torch.get_num_threads()
        return max(0, min(MOST_READERS, len(os.sched_getaffinity(0)) // processes.size() - busy))
    if not asked.isdecimal() or int(asked) > 1000:
        raise GranularityError(f"GRANULARITY_READERS: {asked!r} must be a number of processes, 0 to 1000")
    return int(asked)


class Feed:
    """Batches of images of one shape, step after step: feed(step) is uint8 [B, H, W, C] on the device. Readers call
    `view` for the rows of each step; the first of them has the place `first_place` in the batch.
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
        self._steps, self._next = steps, -1
        self._batches: Iterator[torch.Tensor] | None = None
        # It may not refer to this object, or it and its readers would never be forgotten.
        pieces = partial(_requests, rows_of, steps, first_place, _piece(int(np.prod(shape)), readers(device)))
        self._from = partial(_batches, _Pieces(view), pieces, device)

    def __call__(self, step: int) -> torch.Tensor:
        """The images of a step; reading goes on with the steps that follow it. Raises GranularityError if an image
        cannot be read, or a reader was killed.
        """
        if step != self._next:
            self._batches = None  # and with it, its readers
            self._batches = self._from(step)
        found, self._next = next(self._batches), step + 1
        if self._next == self._steps:
            self._batches, self._next = None, -1
        return found


def _batches(
    pieces: _Pieces, requests_from: Callable[[int], Iterator[tuple]], device: torch.device, first: int
) -> Iterator[torch.Tensor]:
    """The batches of all steps from the first on."""
    parent, more = os.getpid(), {"generator": torch.Generator()}  # or it would draw from that of the training
    if count := readers(device):
        more |= {"multiprocessing_context": "fork", "worker_init_fn": lambda number: _become_reader(parent)}
        more |= {"prefetch_factor": AHEAD, "num_workers": count}
    loader = DataLoader(pieces, None, sampler=requests_from(first), pin_memory=device.type == "cuda", **more)
    before = signal.getsignal(signal.SIGCHLD)
    parts, found = iter(loader), []
    if threading.current_thread() is threading.main_thread():  # torch's handler would raise a reader's death anywhere
        signal.signal(signal.SIGCHLD, before)
    while (part := _next(parts)) is not None:
        found.append(part[0].to(device, non_blocking=True))
        if part[1]:
            yield torch.cat(found)
            found = []


def _next(parts: Iterator[Any]) -> Any:
    try:
        part = next(parts, None)
    except (RuntimeError, OSError, EOFError) as error:  # a reader has died, perhaps while it handed images over
        why = str(error).partition(". ")[0] or type(error).__name__
        raise GranularityError(
            f"a process that reads images has ended ({why}); what is saved is kept. If memory is short, set "
            "GRANULARITY_READERS to fewer processes"
        ) from error
    if isinstance(part, str):
        raise GranularityError(part)
    return part


def _requests(
    rows_of: Callable[[int], np.ndarray], steps: int, first_place: int, piece: int, first: int
) -> Iterator[tuple[int, int, np.ndarray, bool]]:
    """What the readers are asked for: step, place and rows of each piece, and whether it is the step's last."""
    for step in range(first, steps):
        rows = np.asarray(rows_of(step))
        for start in range(0, len(rows), piece):
            yield step, first_place + start, rows[start : start + piece], start + piece >= len(rows)


class _Pieces:
    """Some images of a step, given what to read: uint8 [n, H, W, C], and whether they are its last; or an error."""

    def __init__(self, view: View):
        self.view = view

    def __getitem__(self, request: tuple[int, int, np.ndarray, bool]) -> tuple[torch.Tensor, bool] | str:
        step, place, rows, last = request
        try:
            views = [self.view(int(row), step, place + i) for i, row in enumerate(rows)]
        except GranularityError as error:  # torch would make a page of it
            return str(error)
        return torch.from_numpy(np.stack(views)), last


def _piece(image_bytes: int, readers: int) -> int:
    """How many images a reader reads at once: what all have ready takes half of the shared memory at most."""
    room = shutil.disk_usage(SHARED).free // 2
    return max(1, min(PIECE, room // (image_bytes * max(1, readers) * (AHEAD + 1))))


def _become_reader(parent: int) -> None:
    """In a reader: end with the training, however it ends, and leave signals to it; it says when all is saved."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
