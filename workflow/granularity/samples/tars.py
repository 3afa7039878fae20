"""Members of tar archives, found without unpacking anything: images are read in place, by offset and size."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from granularity.errors import GranularityError
from granularity.progress import track


class Members(NamedTuple):
    """The regular files in a tar: names, and where their bytes begin and how many they are."""

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
    """The regular files in one tar.

    Raises:
        GranularityError: the archive is missing, truncated, compressed or none, or a member's name would leave the
            folder it is unpacked in. (Nothing is unpacked here; but such an archive is nobody's data set.)
    """
    found = Members([], [], [])
    try:
        size = file.stat().st_size
        with tarfile.open(file, "r:") as archive:
            for member in archive:
                archive.members = []  # or the archive would keep every header in memory
                if not member.isreg() or member.issparse():
                    continue
                if member.name.startswith("/") or ".." in PurePosixPath(member.name).parts:
                    raise GranularityError(f"{file}: the member '{member.name}' has a path that leaves the archive")
                if member.offset_data + member.size > size:
                    raise GranularityError(f"{file}: truncated in the member '{member.name}'")
                found.names.append(member.name)
                found.offsets.append(member.offset_data)
                found.sizes.append(member.size)
            archive.fileobj.seek(archive.offset)
            if archive.fileobj.read(512) != bytes(512):  # cut off between two members, all that were left looks whole
                raise GranularityError(f"{file}: truncated (a tar archive ends in zeros, and this one does not)")
    except tarfile.TarError as error:
        raise GranularityError(
            f"{file}: is truncated or no plain tar archive ({error}); unpack a compressed one (gunzip) first"
        ) from None
    except OSError as error:
        raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
    return found
