"""Digests of what lies below a folder and in files of the user's: they tell that a data set has changed.

:func:`names` and :func:`state` are for planning, which must not read a data set: somebody waits for it.
:func:`stats` and :func:`contents` are for the job that reads it anyway.

Folders are read by several threads: over a network, a folder costs a round trip or two. Links are followed, as the
sources do; a folder that is met again (a link to one above, or two to one) is listed once. What is hidden is left out.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, open_regular
from granularity.data.endings import ENDINGS

ABSENT = "absent"
THREADS = 8
SMALL = 1 << 20  # bytes of a file that planning hashes
LARGEST = 64 << 30  # bytes of a file that a job hashes, such as weights; a hole may be of any size
SINGLE = frozenset(ending[1:].encode() for ending in ENDINGS)
DOT = ord(".")
LEFT_OUT = b"lost+found"  # at the root of a disk, for its administrator alone
GONE = (errno.ENOENT, errno.ELOOP)  # deleted meanwhile, or a link that leads nowhere


class _Listed(NamedTuple):
    """One folder: the device and number that tell it from others, its digest without that of folders, and these."""

    identity: tuple[int, int] | None
    digest: bytes
    folders: list[bytes]


def names(root: Path) -> str:
    """A digest of all paths below a folder, and of size and time of every file that is no single image.

    Those are archives and tables, which are few. An image that is replaced under its name does not show; the stages
    that read it compare its checksum.

    Returns:
        16 hexadecimal digits; :data:`ABSENT` where there is no such folder.

    Raises:
        GranularityError: a folder cannot be read.
    """
    return _digest(root, every=False)


def stats(root: Path) -> str:
    """A digest as of :func:`names`, but of size and time of every file: a minute where a network has a million.

    Raises:
        GranularityError: a folder cannot be read.
    """
    return _digest(root, every=True)


def state(file: Path | str) -> str:
    """What tells at planning that a file has changed: a digest of its content or, of a large one, of size and time.

    Returns:
        16 hexadecimal digits; :data:`ABSENT` where no file can be read: the stage says why.
    """
    try:
        with open_regular(file) as stream:
            found = os.fstat(stream.fileno())
            small = found.st_size <= SMALL
            digest = hashlib.file_digest(stream, "sha256") if small else hashlib.sha256(_size_and_time(found))
    except (GranularityError, OSError):
        return ABSENT
    return digest.hexdigest()[:16]


def contents(files: Iterable[Path | str]) -> dict[str, str]:
    """The SHA-256 of files, by their paths as given; :data:`ABSENT` where there is none.

    Raises:
        GranularityError: something cannot be read, is no file, or is absurdly large.
    """
    found = {}
    for file in map(str, files):
        try:
            with open_regular(file) as stream:
                if os.fstat(stream.fileno()).st_size > LARGEST:
                    raise GranularityError(f"{file}: is larger than {LARGEST:,} bytes, and no such file should be")
                found[file] = hashlib.file_digest(stream, "sha256").hexdigest()
        except MissingError:
            found[file] = ABSENT
        except OSError as error:
            raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
    return found


def _digest(root: Path, every: bool) -> str:
    total, seen = hashlib.sha256(), {}
    level = [(b"", os.fsencode(root))]
    with ThreadPoolExecutor(THREADS) as pool:
        while level:
            below = []
            found = pool.map(partial(_listed, every=every), (path for _, path in level))
            for (name, path), (identity, digest, folders) in zip(level, found, strict=True):
                if identity is None and not name:
                    return ABSENT
                first = seen.setdefault(identity or name, name)
                if first == name:
                    total.update(name + b"\0" + digest)
                    below += [(name + b"/" + one, path + b"/" + one) for one in folders]
                else:
                    total.update(name + b"\0" + first + b"\0")
            level = below
    return total.hexdigest()[:16]


def _listed(folder: bytes, every: bool) -> _Listed:
    """List one folder; empty, without an identity, where it is gone."""
    lines, folders = [], []
    try:
        found = os.stat(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name[0] == DOT or name == LEFT_OUT:
                    continue
                if _is_folder(entry):
                    folders.append(name)
                elif every or name.rpartition(b".")[2].lower() not in SINGLE:
                    lines.append(b"%b\0%b" % (name, _measures(entry)))
                else:
                    lines.append(name)
    except OSError as error:
        if error.errno in GONE:
            return _Listed(None, b"", [])
        where = os.fsdecode(error.filename or folder)
        raise GranularityError(
            f"{where}: cannot be read ({error.strerror or error}); give it the permission to be read, or move it "
            "out of samples.root"
        ) from None
    lines.sort()
    return _Listed((found.st_dev, found.st_ino), hashlib.sha256(b"\0\0".join(lines)).digest(), sorted(folders))


def _is_folder(entry: os.DirEntry) -> bool:
    """Whether an entry is a folder or leads to one; asks the disk only about links."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno in GONE:
            return False
        raise


def _measures(entry: os.DirEntry) -> bytes:
    """Size and time of what an entry is or leads to; nothing where that is gone."""
    try:
        return _size_and_time(entry.stat())
    except OSError as error:
        if error.errno in GONE:
            return b""
        raise


def _size_and_time(found: os.stat_result) -> bytes:
    return b"%d %d" % (found.st_size, found.st_mtime_ns)
