"""Work by several processes whose results come in order, such as reading images ahead of a network.

The processes are those of torch's DataLoader. What each returns follows from its item only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.machine import processes

PIECE = 64  # images that a reader reads at once, at most
AHEAD = 2  # pieces queued per reader
MOST_READERS = 8  # beside each process that has a GPU
SHARED = "/dev/shm"  # where readers put images
MEMINFO = Path("/proc/meminfo")
WORKER_BYTES = 1 << 30  # of memory of a process that embeds: measured with ViT-B/32 and ViT-L/14, batches of 64
PR_SET_PDEATHSIG = 1

View = Callable[[int, int, int], np.ndarray]  # row of the sample table, step, place in the batch -> uint8 [H, W, C]


def readers(device: torch.device) -> int:
    """The number of processes that read: GRANULARITY_READERS, or the CPUs that a training on a GPU leaves.

    None beside a CPU, which other jobs keep busy. Raises GranularityError if GRANULARITY_READERS is no such number.
    """
    asked = os.environ.get("GRANULARITY_READERS")
    if asked is None:
        free = len(os.sched_getaffinity(0)) // processes.size() - 1 if device.type == "cuda" else 0
        return max(0, min(MOST_READERS, free))
    if not asked.isdecimal() or int(asked) > 1000:
        raise GranularityError(f"GRANULARITY_READERS: {asked!r} must be a number of processes, 0 to 1000")
    return int(asked)


def workers(threads: int, items: int) -> int:
    """How many processes share the work on some items, of at most `threads`: 0 means this process alone.

    Fewer, and a line that says so, where memory is short (`WORKER_BYTES` each).
    """
    wanted = min(threads, items)
    count = max(1, min(wanted, free_memory() // WORKER_BYTES))
    if count < wanted:
        say(f"memory: free for {count} of {wanted} processes")
    return count if count > 1 else 0


def free_memory() -> int:
    """The bytes of memory that are available, on Linux; more than any machine has elsewhere."""
    try:
        (line,) = (line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
    except (OSError, ValueError):
        return 1 << 62
    return int(line.split()[1]) << 10


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
        self._from = partial(_batches, partial(_viewed, view), pieces, device)

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


def in_order(work: Callable[[Any], Any], items: Iterable[Any], count: int, pin: bool = False) -> Iterator[Any]:
    """Give `work(item)` for each item, made of tensors, by so many processes; by this one if `count` is 0.

    Raises GranularityError as the work does, or if a process was killed.
    """
    parent, more = os.getpid(), {"generator": torch.Generator()}  # or it would draw from that of the training
    if count:
        more |= {"multiprocessing_context": "fork", "worker_init_fn": lambda number: _become_worker(parent)}
        more |= {"prefetch_factor": AHEAD, "num_workers": count}
    before = signal.getsignal(signal.SIGCHLD)
    with warnings.catch_warnings():  # fewer CPUs than processes are the user's choice
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader = DataLoader(_Work(work), None, sampler=items, pin_memory=pin, **more)
        parts = iter(loader)
    if threading.current_thread() is threading.main_thread():  # torch's handler would raise a worker's death anywhere
        signal.signal(signal.SIGCHLD, before)
    while True:
        try:
            part = next(parts, None)
        except (RuntimeError, OSError, EOFError) as error:  # a worker has died, perhaps while it handed results over
            why = str(error).partition(". ")[0] or type(error).__name__
            raise GranularityError(
                f"a process of this job has ended ({why}); what is saved is kept. If memory is short, use fewer: "
                "--threads, or GRANULARITY_READERS where they only read images"
            ) from error
        if isinstance(part, str):
            raise GranularityError(part)
        if part is None:
            return
        yield part


class _Work:
    """A function as the data set of a DataLoader; the message of a GranularityError is returned as text."""

    def __init__(self, work: Callable[[Any], Any]):
        self.work = work

    def __getitem__(self, item: Any) -> Any:
        try:
            return self.work(item)
        except GranularityError as error:  # torch would make a page of it
            return str(error)


def _batches(
    work: Callable, requests_from: Callable[[int], Iterator[tuple]], device: torch.device, first: int
) -> Iterator[torch.Tensor]:
    """The batches of all steps from the first on."""
    pieces = []
    for piece, last in in_order(work, requests_from(first), readers(device), device.type == "cuda"):
        pieces.append(piece.to(device, non_blocking=True))
        if last:
            yield torch.cat(pieces)
            pieces = []


def _requests(
    rows_of: Callable[[int], np.ndarray], steps: int, first_place: int, piece: int, first: int
) -> Iterator[tuple[int, int, np.ndarray, bool]]:
    """What the readers are asked for: step, place and rows of each piece, and whether it is the step's last."""
    for step in range(first, steps):
        rows = np.asarray(rows_of(step))
        for start in range(0, len(rows), piece):
            yield step, first_place + start, rows[start : start + piece], start + piece >= len(rows)


def _viewed(view: View, request: tuple[int, int, np.ndarray, bool]) -> tuple[torch.Tensor, bool]:
    """Some images of a step, given what to read: uint8 [n, H, W, C], and whether they are its last."""
    step, place, rows, last = request
    return torch.from_numpy(np.stack([view(int(row), step, place + i) for i, row in enumerate(rows)])), last


def _piece(image_bytes: int, readers: int) -> int:
    """How many images a reader reads at once: what all have ready takes half of the shared memory at most."""
    room = shutil.disk_usage(SHARED).free // 2
    return max(1, min(PIECE, room // (image_bytes * max(1, readers) * (AHEAD + 1))))


def _become_worker(parent: int) -> None:
    """In a worker: end with the job, however it ends, and leave signals to it; it says when all is saved."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
