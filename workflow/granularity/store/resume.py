"""Long work that a kill interrupts and the next job goes on with: checkpoints, which are safetensors, and records."""

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

# At most about this much work is lost to a kill; results do not depend on it.
try:
    CHECKPOINT_SECONDS = float(os.environ.get("GRANULARITY_CHECKPOINT_SECONDS", "60"))
except ValueError:
    raise GranularityError("GRANULARITY_CHECKPOINT_SECONDS: must be a number of seconds") from None


class Clock:
    """Says when the next checkpoint is due."""

    def __init__(self):
        self._saved = time.monotonic()

    def due(self) -> bool:
        if time.monotonic() - self._saved < CHECKPOINT_SECONDS and not interrupt.requested():
            return False
        self._saved = time.monotonic()
        return True


def write_state(path: Path, arrays: Arrays, notes: dict[str, Any]) -> None:
    """Save a checkpoint; if the process was asked to stop, it ends here."""
    save_state(path, arrays, notes)
    interrupt.stop_if_requested()


def save_state(path: Path, arrays: Arrays, notes: dict[str, Any]) -> None:
    """Save a checkpoint, whole or not at all."""
    arrays = {key: np.asarray(value, order="C") for key, value in arrays.items()}
    text = json.dumps(notes)
    write_atomically(path, safetensors.numpy.save(arrays, {"notes": text, "sha256": _digest(arrays, text)}))


def read_state(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Read what :func:`write_state` wrote; None where there is nothing sound: then the work is done again."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "numpy") as file:
            arrays, about = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
        if about["sha256"] == _digest(arrays, about["notes"]):
            return arrays, json.loads(about["notes"])
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError):
        pass
    say(f"{path}: a corrupt checkpoint; this part is done again")
    path.unlink(missing_ok=True)
    return None


def _digest(arrays: Arrays, notes: str) -> str:
    digest = hashlib.sha256(notes.encode())
    for key in sorted(arrays):
        digest.update(f"{key} {arrays[key].dtype} {arrays[key].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[key]).data)
    return digest.hexdigest()


# ---------------------------------------------------------------- files of records

# The files grow where the unfinished work of a job lies, and become a part of its result by another link to them: they
# never need room twice. A resumed job believes what the checksums of the records, saved at checkpoints, confirm.

PIECE = "records"  # files of what is known of the records written, from the first to the last
Record = tuple[bytes | memoryview, Arrays]  # its bytes, and what is noted of it
Batches, Rows = Callable[[int], Iterator[Sequence[Record]]], Callable[[int], Iterator[np.ndarray]]


@dataclass(frozen=True)
class Layout:
    """How records lie in files."""

    name: str  # of the file; with `{}` for its number where there are several
    head: bytes = b""  # that each file begins with
    limit: int | None = None  # a record that would make a file longer than this many bytes begins a new one
    reserve: int = 0  # bytes that the file will have, for which room is made first (0: unknown)

    @classmethod
    def array(cls, name: str, shape: Sequence[int], dtype: Any) -> Layout:
        """Of a .npy file whose records are rows, or some rows, one after another."""
        head, dtype = io.BytesIO(), np.dtype(dtype)
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(head, about)
        return cls(name, head.getvalue(), reserve=len(head.getvalue()) + int(np.prod(shape)) * dtype.itemsize)


def write_records(
    out: Writer, layout: Layout, total: int, records_from: Batches, batch: int, chunk: int, what: str, unit: str
) -> dict[str, np.ndarray]:
    """Write records, batch by batch; what a killed job had written is kept, also where the disk is full (an OSError).

    Args:
        records_from: gives the records from a first one on, batch by batch, with the same bytes wherever it began.
        batch: how many records it gives at a time, at most.
        chunk: about this many records, at most, are not yet known to a resumed job.
        what, unit: words for progress, such as "decoding" and "batches of 256 images".

    Returns what is known of each record, [total, ...]: `file` int32, `offset` int64, `bytes` int64, `crc32` uint32, and
    what was noted of it.
    """
    clock, new = Clock(), []
    with contextlib.closing(_Files(out.work, layout)) as files:
        index = _taken_up(out.work, files)
        done = sum(len(part["crc32"]) for part in index)

        def save() -> None:
            if new:
                files.stream.flush()
                known = _joined(new)
                first = done - len(known["crc32"])
                save_state(out.work / f"{PIECE}.{first:012d}-{done:012d}", {"first": np.int64(first), **known}, {})
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
    """Write a float32 array as :func:`write_records` does; `rows_from` gives its rows from a multiple of `batch` on."""

    def batches_from(first: int) -> Iterator[Sequence[Record]]:
        for rows in rows_from(first * batch):
            yield [(np.ascontiguousarray(rows, np.float32).tobytes(), {})]

    layout, batches = Layout.array(name, shape, np.float32), -(-shape[0] // batch)
    write_records(out, layout, batches, batches_from, 1, max(1, chunk // batch), what, f"batches of {batch} images")
    out.described[name] = {"shape": list(shape), "dtype": "float32"}


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _taken_up(work: Path, files: _Files) -> list[dict[str, np.ndarray]]:
    """What is known of the records that an earlier job has written, from the first one on, as long as it is sound."""
    index: list[dict[str, np.ndarray]] = []
    done = 0
    while pieces := sorted(work.glob(f"{PIECE}.{done:012d}-*")):
        part, _ = read_state(pieces[-1]) or ({}, {})
        if part.pop("first", None) != done or not files.take(part):
            say(f"{pieces[-1]}: what it tells of is not there any more, or corrupt; the rest is done again")
            break
        index.append(part)
        done += len(part["crc32"])
    return index


class _Files:
    """The files that records are written to, one after another."""

    def __init__(self, folder: Path, layout: Layout):
        self.folder, self.layout = folder, layout
        self.number, self._used = 0, len(layout.head)  # where the next record goes, if it fits
        self._opened, self.stream = -1, io.BytesIO()

    def append(self, records: Sequence[Record]) -> dict[str, np.ndarray]:
        """Write some records; returns what is known of them."""
        places = self._places([len(data) for data, _ in records])
        for place, (data, _) in zip(places, records, strict=True):
            self._at(*place).write(data)
        notes = {name: np.stack([one[name] for _, one in records]) for name in records[0][1]}
        return {
            "file": np.array([number for number, _ in places], np.int32),
            "offset": np.array([offset for _, offset in places], np.int64),
            "bytes": np.array([len(data) for data, _ in records], np.int64),
            "crc32": np.array([zlib.crc32(data) for data, _ in records], np.uint32),
            **notes,
        }

    def take(self, part: Mapping[str, np.ndarray]) -> bool:
        """Go on behind records that an earlier job has written; False where they are not as it says."""
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
        """Number of the file and offset of each of the next records."""
        places, head, limit = [], len(self.layout.head), self.layout.limit
        for size in sizes:
            if limit is not None and self._used > head and self._used + size > limit:
                self.number, self._used = self.number + 1, head
            places.append((self.number, self._used))
            self._used += size
        return places

    def _at(self, number: int, offset: int) -> BinaryIO:
        """The stream of a file, at an offset; a file that is left has its length now."""
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
        if path.exists() and not path.stat().st_mode & 0o200:  # a link to what has been published
            path.unlink()
        self.stream = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        self._opened = number
        self.stream.write(self.layout.head)
        if self.layout.reserve and hasattr(os, "posix_fallocate"):  # a disk is too small now, or never; not on macOS
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
