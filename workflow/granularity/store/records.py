"""Many records in one file or in a row of files, appended batch by batch: what a killed job had written is kept.

The files grow where the unfinished work of a job lies, and become a part of its result by another link to them, so that
they are written once and never need room twice. What lies in them is known by the checksum of each record, which are
saved whenever a checkpoint is due: a resumed job believes what they confirm, and makes the rest again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from granularity.base import interrupt
from granularity.base.progress import say, track
from granularity.store.checkpoints import Clock, read_state, write_state
from granularity.store.chunks import saved_pieces
from granularity.store.writer import Writer, link

PIECE = "records"  # files of what is known of the records written
Record = tuple[bytes | memoryview, Mapping[str, np.ndarray]]  # its bytes, and what is noted of it


@dataclass(frozen=True)
class Layout:
    """How records lie in files.

    Attributes:
        name: the file; with `{}` for its number where there are several.
        head: bytes that each file begins with.
        limit: a record that would make a file longer than this many bytes begins a new one (None: one file).
        reserve: bytes that the file will have, for which room is made first (0: unknown).
    """

    name: str
    head: bytes = b""
    limit: int | None = None
    reserve: int = 0


def write_records(
    out: Writer,
    layout: Layout,
    total: int,
    compute: Callable[[int, int], Sequence[Record]],
    batch: int,
    chunk: int,
    what: str,
) -> dict[str, np.ndarray]:
    """Write the records ``compute(start, stop)`` of consecutive ranges of at most ``batch``.

    The bytes do not depend on where a job was killed, or on `batch` and `chunk`, as long as ``compute`` gives each
    record the same bytes in any range.

    Args:
        chunk: at most this many records are not yet known to a resumed job.

    Returns:
        What is known of each record, [total, ...]: `file` int32, `offset` int64, `bytes` int64, `crc32` uint32, and
        what was noted of it.

    Raises:
        OSError: the disk is full; what has been written is kept.
    """
    pieces, clock = saved_pieces(out.work, PIECE), Clock()
    done = saved = 0
    index: list[dict[str, np.ndarray]] = []
    new: list[dict[str, np.ndarray]] = []
    with _Files(out.work, layout) as files:
        for start in track(range(0, total, batch), -(-total // batch), what, f"batches of {batch} images"):
            stop = min(start + batch, total)
            while done < stop:
                part = None if new else _kept(pieces.get(done, []), done, files)
                if part is None:
                    part = files.append(compute(done, stop))
                    new.append(part)
                index.append(part)
                done += len(part["crc32"])
                if new and (clock.due() or done in pieces or done + batch > saved + chunk or done == total):
                    files.flush()
                    write_state(out.work / f"{PIECE}.{saved:012d}-{done:012d}", {"first": saved, **_joined(new)}, {})
                    new = []
                if not new:
                    saved = done
                    interrupt.stop_if_requested()
        files.finish()
        for number in range(files.number + 1):
            name = layout.name.format(number)
            link(out.work / name, out.path(name))
    return _joined(index)


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _kept(found: list[Path], start: int, files: _Files) -> dict[str, np.ndarray] | None:
    """What the first sound one of some pieces knows of the records from `start`, if they are there as it says."""
    for file in found:
        part, _ = read_state(file) or ({}, {})
        if part.pop("first", None) == start:
            if files.take(part):
                return part
            say(f"{file}: what it tells of is not there any more, or corrupt; this part is done again")
    return None


class _Files:
    """The files that records are written to, one after another.

    Attributes:
        number: of the file that the next record goes to, if it fits.
    """

    def __init__(self, folder: Path, layout: Layout):
        self.folder, self.layout = folder, layout
        self.number, self._used = 0, len(layout.head)
        self._opened = -1
        self._stream: BinaryIO | None = None

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *error: object) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError) if error[0] is not None else contextlib.nullcontext():
                self._stream.close()

    def append(self, records: Sequence[Record]) -> dict[str, np.ndarray]:
        """Write some records; returns what is known of them."""
        places = self._places([len(data) for data, _ in records])
        for (number, offset), (data, _) in zip(places, records, strict=True):
            stream = self._at(number, offset)
            stream.write(data)
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
        sizes = part["bytes"].tolist()
        said = list(zip(part["file"].tolist(), part["offset"].tolist(), strict=True))
        if said == self._places(sizes):
            for (number, offset), size, crc32 in zip(said, sizes, part["crc32"].tolist(), strict=True):
                if zlib.crc32(self._at(number, offset).read(size)) != crc32:
                    break
            else:
                return True
        self.number, self._used = before
        return False

    def flush(self) -> None:
        self._stream.flush()

    def finish(self) -> None:
        """Bring the last file to its length, and to the disk."""
        self._at(self.number, self._used).truncate()
        self._close()

    def _places(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Number of the file and offset of each of the next records."""
        places = []
        for size in sizes:
            limit = self.layout.limit
            if limit is not None and self._used > len(self.layout.head) and self._used + size > limit:
                self.number, self._used = self.number + 1, len(self.layout.head)
            places.append((self.number, self._used))
            self._used += size
        return places

    def _at(self, number: int, offset: int) -> BinaryIO:
        """The stream of a file, at an offset; a file that is left has its length now."""
        if number != self._opened:
            if number > self._opened >= 0:
                self._stream.truncate()
            self._close()
            self._open(number)
        if self._stream.tell() != offset:
            self._stream.seek(offset)
        return self._stream

    def _open(self, number: int) -> None:
        path = self.folder / self.layout.name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.stat().st_mode & 0o200:  # a link to what has been published
            copy = path.with_name(f".{path.name}")
            shutil.copyfile(path, copy)
            copy.replace(path)
        self._stream = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b")
        self._opened = number
        self._stream.write(self.layout.head)
        if self.layout.reserve:
            _reserve(self._stream, self.layout.reserve)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            self._stream = None


def _reserve(stream: BinaryIO, size: int) -> None:
    """Make room for a whole file: a disk is too small now, or never."""
    try:
        os.posix_fallocate(stream.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # not on this file system
            raise
