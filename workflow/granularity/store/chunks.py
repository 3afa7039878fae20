"""Rows of a large array, made batch by batch: what a killed job had saved is not made again."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from itertools import starmap
from pathlib import Path
from typing import BinaryIO

import numpy as np

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.store.checkpoints import Clock, read_state, write_state
from granularity.store.writer import Writer

Ranges = list[tuple[int, int]]


def write_rows(
    out: Writer, name: str, total: int, compute: Callable[[int, int], np.ndarray], batch: int, chunk: int, what: str
) -> np.ndarray:
    """:func:`write_ranges` with a function that gives the rows of one range."""
    return write_ranges(out, name, total, lambda ranges: starmap(compute, ranges), batch, chunk, what)


def write_ranges(
    out: Writer,
    name: str,
    total: int,
    compute: Callable[[Ranges], Iterable[np.ndarray]],
    batch: int,
    chunk: int,
    what: str,
) -> np.ndarray:
    """Fill an array file with what ``compute(ranges)`` gives for consecutive ranges of at most ``batch`` rows.

    What is new is saved when a checkpoint is due, before it is more than ``chunk`` rows, and before an error of ours
    ends the job. A resumed job takes up what was saved, wherever it begins and ends, and asks for the other rows alone.
    The bytes do not depend on any of that as long as ``compute`` gives each row the same value in any range.

    Args:
        batch: ranges end at multiples of it; at most ``chunk``.

    Returns:
        The array, memory-mapped, of shape (total, ...).
    """
    # Not through a memory map: that a disk is full would kill the process where it writes to one.
    with out.path(name).open("w+b") as stream:
        missing = _take_up(stream, saved_pieces(out.work, name), total, batch)
        new = _New(out.work, name)
        clock, found = Clock(), iter(compute(missing))
        try:
            for start, stop in track(missing, len(missing), what, f"batches of {batch} images"):
                if start != new.stop:  # what lies between was saved before
                    new.save()
                rows = np.ascontiguousarray(next(found))
                _write(stream, rows, start, total)
                new.add(start, stop, rows)
                if clock.due() or stop + batch > new.start + chunk or stop == total:
                    new.save()
                    interrupt.stop_if_requested()
        except (GranularityError, interrupt.Stopped):
            new.save()
            raise
    array = np.load(out.path(name), mmap_mode="r", allow_pickle=False)
    out.describe_array(name, array)
    return array


class _New:
    """Consecutive rows that are not saved yet, each range by its first."""

    def __init__(self, work: Path, name: str):
        self.work, self.name = work, name
        self.start = self.stop = 0
        self.rows: dict[str, np.ndarray] = {}

    def add(self, start: int, stop: int, rows: np.ndarray) -> None:
        self.start, self.stop = self.start if self.rows else start, stop
        self.rows[f"{start:012d}"] = rows

    def save(self) -> None:
        rows, self.rows = self.rows, {}
        if rows:
            write_state(self.work / f"{self.name}.{self.start:012d}-{self.stop:012d}", rows, {})


def _take_up(stream: BinaryIO, pieces: dict[int, list[Path]], total: int, batch: int) -> Ranges:
    """Write what was saved; the ranges of the other rows."""
    done, missing = 0, []
    while done < total:
        rows = _kept(pieces.get(done, []), done)
        if rows is not None:
            _write(stream, rows, done, total)
            done += len(rows)
            interrupt.stop_if_requested()
        else:
            stop = min(done - done % batch + batch, total)
            missing.append((done, stop))
            done = stop
    return missing


def _write(stream: BinaryIO, rows: np.ndarray, start: int, total: int) -> None:
    """Write rows to their place in an array file; before the first of them, its head.

    With that the space of the rest is reserved: a disk is too small now, or never.
    """
    stream.seek(0, os.SEEK_END)
    if stream.tell() == 0:
        head = {"descr": np.lib.format.dtype_to_descr(rows.dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(stream, head | {"shape": (total, *rows.shape[1:])})
        try:
            os.posix_fallocate(stream.fileno(), 0, stream.tell() + total * rows[0].nbytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # not on this file system
                raise
    stream.seek(0)
    np.lib.format.read_magic(stream)
    np.lib.format.read_array_header_1_0(stream)
    stream.seek(start * rows[0].nbytes, os.SEEK_CUR)
    stream.write(rows.data)


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
