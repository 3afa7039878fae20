"""Run work in several processes and yield its results in order, for example to read images ahead of a network.

The processes belong to torch's DataLoader. Each result depends only on its item.
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

PIECE = 64  # most images that a reader reads at once
AHEAD = 2  # pieces queued per reader
MOST_READERS = 8  # per process that has a GPU
SHARED = "/dev/shm"  # where readers put images
MEMINFO = Path("/proc/meminfo")
WORKER_BYTES = 1 << 30  # memory of a process that embeds: measured with ViT-B/32 and ViT-L/14, batches of 64
PR_SET_PDEATHSIG = 1

View = Callable[[int, int, int], np.ndarray]  # row of the sample table, step, place in the batch -> uint8 [H, W, C]


def readers(device: torch.device) -> int:
    """Return the number of processes that read: GRANULARITY_READERS, or the CPUs that a training on a GPU leaves free.

    It is 0 on a CPU, because other jobs use the CPUs. Raise GranularityError if GRANULARITY_READERS is not a number.
    """
    setting = os.environ.get("GRANULARITY_READERS")
    if setting is None:
        free = len(os.sched_getaffinity(0)) // processes.size() - 1 if device.type == "cuda" else 0
        return max(0, min(MOST_READERS, free))
    if not setting.isdecimal() or int(setting) > 1000:
        raise GranularityError(f"GRANULARITY_READERS: {setting!r} must be a number of processes, 0 to 1000")
    return int(setting)


def workers(threads: int, items: int) -> int:
    """Return how many processes, at most `threads`, share the work on some items; 0 means only this process.

    If memory is short (each needs `WORKER_BYTES`), there are fewer, and a line says so.
    """
    wanted = min(threads, items)
    count = max(1, min(wanted, free_memory() // WORKER_BYTES))
    if count < wanted:
        say(f"memory: enough for only {count} of {wanted} processes")
    return count if count > 1 else 0


def free_memory() -> int:
    """Return the available memory in bytes on Linux; elsewhere more than any machine has."""
    try:
        (line,) = (line for line in MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
    except (OSError, ValueError):
        return 1 << 62
    return int(line.split()[1]) << 10


class Feed:
    """Batches of images of one shape: feed(step) is uint8 [B, H, W, C] on the device. Readers call `view` for
    each row of a step; the first row has the place `first_place` in the batch.
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
        # It must not refer to this object, otherwise neither it nor its readers would ever be freed.
        pieces = partial(_requests, rows_of, steps, first_place, _piece(int(np.prod(shape)), readers(device)))
        self._from = partial(_batches, partial(_viewed, view), pieces, device)

    def __call__(self, step: int) -> torch.Tensor:
        """Return the images of a step; reading continues with the following steps. Raise GranularityError if an image
        cannot be read, or a reader was killed.
        """
        if step != self._next:
            self._batches = None  # also ends its readers
            self._batches = self._from(step)
        found, self._next = next(self._batches), step + 1
        if self._next == self._steps:
            self._batches, self._next = None, -1
        return found


def in_order(work: Callable[[Any], Any], items: Iterable[Any], count: int, pin: bool = False) -> Iterator[Any]:
    """Yield `work(item)` for each item, made of tensors, computed by `count` processes (0: by this one).

    Raise GranularityError if the work does, or if a process was killed.
    """
    parent, more = os.getpid(), {"generator": torch.Generator()}  # otherwise it would draw from the training's
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
        except (RuntimeError, OSError, EOFError) as error:  # a worker has died, perhaps while passing on results
            reason = str(error).partition(". ")[0] or type(error).__name__
            raise GranularityError(
                f"a process of this job has ended ({reason}); saved work is kept. If memory is short, use fewer "
                "processes: --threads, or GRANULARITY_READERS if they only read images"
            ) from error
        if isinstance(part, str):
            raise GranularityError(part)
        if part is None:
            return
        yield part


class _Work:
    """A function in the form of a DataLoader's data set; it returns the message of a GranularityError as text."""

    def __init__(self, work: Callable[[Any], Any]):
        self.work = work

    def __getitem__(self, item: Any) -> Any:
        try:
            return self.work(item)
        except GranularityError as error:  # torch would add a page of traceback
            return str(error)


def _batches(
    work: Callable, requests_from: Callable[[int], Iterator[tuple]], device: torch.device, first: int
) -> Iterator[torch.Tensor]:
    """Yield the batches of all steps from `first` on."""
    pieces = []
    for piece, last in in_order(work, requests_from(first), readers(device), device.type == "cuda"):
        pieces.append(piece.to(device, non_blocking=True))
        if last:
            yield torch.cat(pieces)
            pieces = []


def _requests(
    rows_of: Callable[[int], np.ndarray], steps: int, first_place: int, piece: int, first: int
) -> Iterator[tuple[int, int, np.ndarray, bool]]:
    """Yield requests to readers: step, place and rows of each piece, and whether it is the step's last."""
    for step in range(first, steps):
        rows = np.asarray(rows_of(step))
        for start in range(0, len(rows), piece):
            yield step, first_place + start, rows[start : start + piece], start + piece >= len(rows)


def _viewed(view: View, request: tuple[int, int, np.ndarray, bool]) -> tuple[torch.Tensor, bool]:
    """Read the images of a request: uint8 [n, H, W, C], and whether they are the last of their step."""
    step, place, rows, last = request
    return torch.from_numpy(np.stack([view(int(row), step, place + i) for i, row in enumerate(rows)])), last


def _piece(image_bytes: int, readers: int) -> int:
    """Return how many images a reader reads at once: those ready take at most half of the shared memory."""
    room = shutil.disk_usage(SHARED).free // 2
    return max(1, min(PIECE, room // (image_bytes * max(1, readers) * (AHEAD + 1))))


def _become_worker(parent: int) -> None:
    """Prepare a worker: end whenever the job ends, and ignore signals, because the job ends it when all is saved."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
