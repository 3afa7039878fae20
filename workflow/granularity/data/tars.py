"""Members of tar archives, found without unpacking anything: images are read in place, by offset and size."""

import tarfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.regular import check_regular


class Members(NamedTuple):
    """The regular files in a tar: their names, where their bytes begin, and how many there are."""

    names: list[str]
    offsets: list[int]
    sizes: list[int]


def scan(files: list[Path], threads: int = 1) -> Iterator[Members]:
    """The members of each tar, in order, of several tars at a time; raises as :func:`members` does."""
    what = len(files), "reading archives", "archives"
    if threads == 1 or len(files) == 1:
        yield from track(map(members, files), *what)
        return
    with ProcessPoolExecutor(threads) as pool:  # reading headers is Python's own work, which threads cannot share
        yield from track(pool.map(members, files, chunksize=max(1, min(64, len(files) // (8 * threads)))), *what)


def members(file: Path) -> Members:
    """The regular files in one tar, no links, devices or sparse files; GranularityError: missing, truncated or none."""
    found = Members([], [], [])
    size = check_regular(file).st_size
    try:
        with tarfile.open(file, "r:", encoding="utf-8") as archive:
            for member in archive:
                archive.members = []  # or the archive would keep every header in memory
                if member.isreg() and not member.issparse():
                    if member.size < 0 or member.offset_data + member.size > size:
                        raise tarfile.ReadError(f"it ends within the member {member.name!r}")
                    for column, value in zip(found, (member.name, member.offset_data, member.size), strict=True):
                        column.append(value)
            archive.fileobj.seek(archive.offset)
            if archive.fileobj.read(512) != bytes(512):  # cut off between two members, all that were left looks whole
                raise tarfile.ReadError("a tar archive ends in zeros, and this one does not")
    except Exception as error:  # tarfile lets through whatever its parsing runs into
        what = f"is truncated or no plain tar archive ({error})"
        raise GranularityError(f"{file}: {what}; unpack a compressed one (gunzip) first") from None
    return found
