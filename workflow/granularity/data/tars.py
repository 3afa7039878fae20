"""Members of tar archives, found without unpacking anything: images are read in place, by offset and size."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.regular import check_regular

LONGEST_HEADER = 1 << 16  # paths have 4,096 bytes at most; extended attributes can be longer


class Members(NamedTuple):
    """The regular files in a tar: their names, where their bytes begin, and how many there are."""

    names: list[str]
    offsets: list[int]
    sizes: list[int]


def scan(files: list[Path], threads: int = 1) -> Iterator[Members]:
    """The members of each tar, in order; several tars at a time.

    Raises:
        GranularityError: see :func:`members`.
    """
    what = "reading archives", "archives"
    if threads == 1 or len(files) == 1:
        yield from track(map(members, files), len(files), *what)
        return
    with ProcessPoolExecutor(threads) as pool:  # reading headers is Python's own work, which threads cannot share
        yield from track(
            pool.map(members, files, chunksize=max(1, min(64, len(files) // (8 * threads)))), len(files), *what
        )


def members(file: Path) -> Members:
    """The regular files in one tar; links, devices and GNU's sparse files are passed over.

    Raises:
        GranularityError: the archive is missing, truncated, compressed or none; or a member's name is not UTF-8, or
            would leave the folder it is unpacked in. (Nothing is unpacked here; but such an archive is nobody's data
            set.)
    """
    found = Members([], [], [])
    size = check_regular(file).st_size
    try:
        with _Headers(io.FileIO(file)) as stream, tarfile.open(fileobj=stream, mode="r:", encoding="utf-8") as archive:
            end = -1
            for member in archive:
                archive.members = []  # or the archive would keep every header in memory
                if member.size < 0 or archive.offset <= end:  # which would lead round in circles
                    raise GranularityError(f"{file}: corrupt in the member {member.name!r}")
                end = archive.offset
                if not member.isreg() or member.issparse():
                    continue
                if any("\ud800" <= character <= "\udfff" for character in member.name):  # Python's stand-ins
                    raise GranularityError(f"{file}: the name of the member {member.name!r} is not UTF-8")
                if member.name.startswith("/") or ".." in PurePosixPath(member.name).parts:
                    raise GranularityError(f"{file}: the member {member.name!r} has a path that leaves the archive")
                if member.offset_data + member.size > size:
                    raise GranularityError(f"{file}: truncated in the member {member.name!r}")
                found.names.append(member.name)
                found.offsets.append(member.offset_data)
                found.sizes.append(member.size)
            stream.seek(archive.offset)
            if stream.read(512) != bytes(512):  # cut off between two members, all that were left looks whole
                raise GranularityError(f"{file}: truncated (a tar archive ends in zeros, and this one does not)")
    except GranularityError:
        raise
    except OSError as error:
        raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
    except Exception as error:  # tarfile lets through whatever its parsing runs into
        raise GranularityError(
            f"{file}: is truncated or no plain tar archive ({error}); unpack a compressed one (gunzip) first"
        ) from None
    return found


class _Headers(io.BufferedReader):
    """A file of which only headers are read.

    tarfile believes the size that an extended header gives of itself, however many terabytes.
    """

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)
