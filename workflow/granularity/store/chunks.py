"""Rows of a large array, made batch by batch: what a killed job had saved is not made again."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from granularity.base import interrupt
from granularity.base.progress import track
from granularity.store.checkpoints import Clock, read_state, write_state
from granularity.store.writer import Writer


def write_rows(
    out: Writer, name: str, total: int, compute: Callable[[int, int], np.ndarray], batch: int, chunk: int, what: str
) -> np.ndarray:
    """Fill an array file with ``compute(start, stop)`` for consecutive ranges of at most ``batch`` rows.

    What is new is saved when a checkpoint is due, and before it is more than ``chunk`` rows. A resumed job takes up
    what was saved, wherever it begins and ends. The bytes do not depend on any of that as long as ``compute`` gives
    each row the same value in any range.

    Args:
        batch: ranges end at multiples of it; at most ``chunk``.

    Returns:
        The array, memory-mapped, of shape (total, ...).
    """
    pieces, clock = saved_pieces(out.work, name), Clock()
    done = saved = 0
    new: dict[str, np.ndarray] = {}  # rows saved to `done`, each batch by its first
    # Not through a memory map: that a disk is full would kill the process where it writes to one.
    with out.path(name).open("w+b") as stream:
        for start in track(range(0, total, batch), -(-total // batch), what, f"batches of {batch} images"):
            stop = min(start + batch, total)
            while done < stop:
                rows = None if new else _kept(pieces.get(done, []), done)
                if rows is None:
                    rows = new[f"{done:012d}"] = np.ascontiguousarray(compute(done, stop))
                if done == 0:
                    _begin(stream, (total, *rows.shape[1:]), rows.dtype)
                stream.write(rows.data)
                done += len(rows)
                if new and (clock.due() or done in pieces or done + batch > saved + chunk or done == total):
                    write_state(out.work / f"{name}.{saved:012d}-{done:012d}", new, {})
                    new = {}
                if not new:
                    saved = done
                    interrupt.stop_if_requested()
    array = np.load(out.path(name), mmap_mode="r", allow_pickle=False)
    out.describe_array(name, array)
    return array


def _begin(stream: BinaryIO, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Write the head of an array file, and reserve the space of the rest: a disk is too small now, or never."""
    head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, head)
    try:
        os.posix_fallocate(stream.fileno(), 0, stream.tell() + math.prod(shape) * dtype.itemsize)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # not on this file system
            raise


def saved_pieces(work: Path, name: str) -> dict[int, list[Path]]:
    """What was saved, by its first row, the longest first."""
    found: dict[int, list[Path]] = {}
    for file in sorted(work.glob(f"{name}.*"), reverse=True):
        if place := re.fullmatch(r"(\d{12})-\d{12}", file.name.removeprefix(f"{name}.")):
            found.setdefault(int(place[1]), []).append(file)
    return found


def _kept(files: list[Path], start: int) -> np.ndarray | None:
    """The rows from `start` in the first of some files that is sound (it may have been damaged since)."""
    for file in files:
        arrays, _ = read_state(file) or ({}, {})
        if min(arrays, default="") == f"{start:012d}":
            return np.concatenate([arrays[key] for key in sorted(arrays)])
    return None
