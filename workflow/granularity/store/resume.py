"""Resumable work: checkpoints, which are safetensors files, and files of records that the next job continues."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import say, track
from granularity.store.place import write_atomically
from granularity.store.writer import Writer, link

Arrays = Mapping[str, np.ndarray]

# A kill loses about this much work at most; results do not depend on it.
try:
    CHECKPOINT_SECONDS = float(os.environ.get("GRANULARITY_CHECKPOINT_SECONDS", "60"))
except ValueError:
    raise GranularityError("GRANULARITY_CHECKPOINT_SECONDS: must be a number of seconds") from None


class Clock:
    """Tells when the next checkpoint is due."""

    def __init__(self):
        self._saved = time.monotonic()

    def due(self) -> bool:
        if time.monotonic() - self._saved < CHECKPOINT_SECONDS and not interrupt.requested():
            return False
        self._saved = time.monotonic()
        return True


def write_state(path: Path, arrays: Arrays, notes: dict[str, Any]) -> None:
    """Save a checkpoint; end the process here if it was asked to stop."""
    save_state(path, arrays, notes)
    interrupt.stop_if_requested()


def save_state(path: Path, arrays: Arrays, notes: dict[str, Any]) -> None:
    """Save a checkpoint atomically."""
    arrays = {key: np.asarray(value, order="C") for key, value in arrays.items()}
    text = json.dumps(notes)
    write_atomically(path, safetensors.numpy.save(arrays, {"notes": text, "sha256": _digest(arrays, text)}))


def read_state(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Read a checkpoint; None if there is no valid one, and the work must be done again."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "numpy") as file:
            arrays, about = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
        if about["sha256"] == _digest(arrays, about["notes"]):
            return arrays, json.loads(about["notes"])
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError):
        pass
    say(f"{path}: corrupt checkpoint; this part is recomputed")
    path.unlink(missing_ok=True)
    return None


def _digest(arrays: Arrays, notes: str) -> str:
    digest = hashlib.sha256(notes.encode())
    for key in sorted(arrays):
        digest.update(f"{key} {arrays[key].dtype} {arrays[key].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[key]).data)
    return digest.hexdigest()


# ---------------------------------------------------------------- files of records

# The files grow in the folder of the job's unfinished work and enter the result as hard links, so they never take twice
# the space. A resumed job keeps the records that match the checksums saved at checkpoints.

PIECE = "records"  # prefix of the index files, named by their first and last record
Record = tuple[bytes | memoryview, Arrays]  # its bytes, and arrays noted about it
Batches, Rows = Callable[[int], Iterator[Sequence[Record]]], Callable[[int], Iterator[np.ndarray]]


@dataclass(frozen=True)
class Layout:
    """How records are laid out in files."""

    name: str  # of the file; contains `{}` for its number if there are several
    head: bytes = b""  # first bytes of each file
    limit: int | None = None  # most bytes of a file; a record that does not fit begins a new one
    reserve: int = 0  # final bytes of the file, allocated in advance (0: unknown)

    @classmethod
    def array(cls, name: str, shape: Sequence[int], dtype: Any) -> Layout:
        """Return the layout of a .npy file whose records are consecutive blocks of rows."""
        head, dtype = io.BytesIO(), np.dtype(dtype)
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(head, about)
        return cls(name, head.getvalue(), reserve=len(head.getvalue()) + int(np.prod(shape)) * dtype.itemsize)


def write_records(
    out: Writer, layout: Layout, total: int, records_from: Batches, batch: int, chunk: int, what: str, unit: str
) -> dict[str, np.ndarray]:
    """Write records in batches. Records that a killed job wrote are kept, even if the disk is full (raises OSError).

    Args:
        records_from: yields batches of records from a given index on; their bytes must not depend on that index.
        batch: most records in a batch.
        chunk: most records, about, that a kill can lose.
        what, unit: words for progress, such as "decoding" and "batches of 256 images".

    Returns the index of all records, [total, ...]: `file` int32, `offset` int64, `bytes` int64, `crc32` uint32, and
    what was noted about each.
    """
    clock, new = Clock(), []
    with contextlib.closing(_Files(out.work, layout)) as files:
        index = _taken_up(out.work, files)
        done = sum(len(part["crc32"]) for part in index)

        def save() -> None:
            if new:
                files.stream.flush()
                joined = _joined(new)
                first = done - len(joined["crc32"])
                save_state(out.work / f"{PIECE}.{first:012d}-{done:012d}", {"first": np.int64(first), **joined}, {})
                new.clear()

        missing = records_from(done) if done < total else iter(())
        try:
            for records in track(missing, -(-(total - done) // batch), what, unit):
                new.append(files.append(records))
                index.append(new[-1])
                done += len(records)
                if clock.due() or batch * (len(new) + 1) > chunk or done == total:
                    save()
                    interrupt.stop_if_requested()
        except (GranularityError, interrupt.Stopped):
            save()
            raise
        files.stream.truncate()
    for name in map(layout.name.format, range(files.number + 1)):
        link(out.work / name, out.path(name))
    return _joined(index)


def write_rows(
    out: Writer, name: str, shape: tuple[int, int], rows_from: Rows, batch: int, chunk: int, what: str
) -> None:
    """Write a float32 array by :func:`write_records`; `rows_from` yields its rows from a multiple of `batch` on."""

    def batches_from(first: int) -> Iterator[Sequence[Record]]:
        for rows in rows_from(first * batch):
            yield [(np.ascontiguousarray(rows, np.float32).tobytes(), {})]

    layout, batches = Layout.array(name, shape, np.float32), -(-shape[0] // batch)
    write_records(out, layout, batches, batches_from, 1, max(1, chunk // batch), what, f"batches of {batch} images")
    out.described[name] = {"shape": list(shape), "dtype": "float32"}


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _taken_up(work: Path, files: _Files) -> list[dict[str, np.ndarray]]:
    """Return the index of the records that an earlier job wrote, up to the first damaged part."""
    index: list[dict[str, np.ndarray]] = []
    done = 0
    while pieces := sorted(work.glob(f"{PIECE}.{done:012d}-*")):
        part, _ = read_state(pieces[-1]) or ({}, {})
        if part.pop("first", None) != done or not files.take(part):
            say(f"{pieces[-1]}: what it refers to is missing or corrupt; the rest is recomputed")
            break
        index.append(part)
        done += len(part["crc32"])
    return index


class _Files:
    """The files to which records are written in order."""

    def __init__(self, folder: Path, layout: Layout):
        self.folder, self.layout = folder, layout
        self.number, self._used = 0, len(layout.head)  # position of the next record, if it fits
        self._opened, self.stream = -1, io.BytesIO()

    def append(self, records: Sequence[Record]) -> dict[str, np.ndarray]:
        """Write records; return their index."""
        places = self._places([len(data) for data, _ in records])
        for place, (data, _) in zip(places, records, strict=True):
            self._at(*place).write(data)
        notes = {name: np.stack([note[name] for _, note in records]) for name in records[0][1]}
        return {
            "file": np.array([number for number, _ in places], np.int32),
            "offset": np.array([offset for _, offset in places], np.int64),
            "bytes": np.array([len(data) for data, _ in records], np.int64),
            "crc32": np.array([zlib.crc32(data) for data, _ in records], np.uint32),
            **notes,
        }

    def take(self, part: Mapping[str, np.ndarray]) -> bool:
        """Continue after the records of an earlier job; return False if they do not match their index."""
        before = self.number, self._used
        sizes, said = part["bytes"].tolist(), list(zip(part["file"].tolist(), part["offset"].tolist(), strict=True))
        if said == self._places(sizes) and all(
            zlib.crc32(self._at(*place).read(size)) == crc32
            for place, size, crc32 in zip(said, sizes, part["crc32"].tolist(), strict=True)
        ):
            return True
        self.number, self._used = before
        return False

    def _places(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Return the file number and offset of each of the next records."""
        places, head, limit = [], len(self.layout.head), self.layout.limit
        for size in sizes:
            if limit is not None and self._used > head and self._used + size > limit:
                self.number, self._used = self.number + 1, head
            places.append((self.number, self._used))
            self._used += size
        return places

    def _at(self, number: int, offset: int) -> BinaryIO:
        """Return the stream of a file at an offset, after truncating and closing the previous file."""
        if number != self._opened:
            if number > self._opened:
                self.stream.truncate()
            self.close()
            self._open(number)
        if self.stream.tell() != offset:
            self.stream.seek(offset)
        return self.stream

    def _open(self, number: int) -> None:
        path = self.folder / self.layout.name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.stat().st_mode & 0o200:  # read-only: linked into a published result
            path.unlink()
        self.stream = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        self._opened = number
        self.stream.write(self.layout.head)
        if self.layout.reserve and hasattr(os, "posix_fallocate"):  # fail now if the disk is too small; not on macOS
            try:
                os.posix_fallocate(self.stream.fileno(), 0, self.layout.reserve)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # not on this file system
                    raise

    def close(self) -> None:
        if self._opened >= 0:
            self._opened = -1
            with self.stream as stream:
                stream.flush()
                os.fsync(stream.fileno())
