"""Find the members of tar archives without unpacking them: images are read in place, by offset and size."""

import tarfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.regular import check_regular


class Members(NamedTuple):
    """The regular files in a tar: their names, where their bytes begin, and their sizes."""

    names: list[str]
    offsets: list[int]
    sizes: list[int]


def scan(files: list[Path], threads: int = 1) -> Iterator[Members]:
    """Yield the members of each tar, in order, reading several tars at a time; raise errors like :func:`members`."""
    what = len(files), "reading archives", "archives"
    if threads == 1 or len(files) == 1:
        yield from track(map(members, files), *what)
        return
    with ProcessPoolExecutor(threads) as pool:  # reading headers runs in Python, which threads cannot parallelise
        yield from track(pool.map(members, files, chunksize=max(1, min(64, len(files) // (8 * threads)))), *what)


def members(file: Path) -> Members:
    """List a tar's regular files, no links, devices or sparse files. GranularityError: missing, truncated or no tar."""
    columns = Members([], [], [])
    size = check_regular(file).st_size
    try:
        with tarfile.open(file, "r:", encoding="utf-8") as archive:
            for member in archive:
                archive.members = []  # otherwise the archive would keep every header in memory
                if member.isreg() and not member.issparse():
                    if member.size < 0 or member.offset_data + member.size > size:
                        raise tarfile.ReadError(f"it ends inside the member {member.name!r}")
                    for column, value in zip(columns, (member.name, member.offset_data, member.size), strict=True):
                        column.append(value)
            archive.fileobj.seek(archive.offset)
            if archive.fileobj.read(512) != bytes(512):  # a tar cut off between two members looks complete
                raise tarfile.ReadError("a tar archive ends in zeros, and this one does not")
    except Exception as error:  # tarfile raises any error of its parsing
        problem = f"is truncated or no plain tar archive ({error})"
        raise GranularityError(f"{file}: {problem}; unpack a compressed one (gunzip) first") from None
    return columns
