"""Digests of folders and users' files, to detect that a data set has changed.

:func:`names` and :func:`state` are for planning, which must not read a data set; :func:`stats` and :func:`contents` for
the job that reads it anyway. Links are followed; a folder met again is listed once. What is hidden is left out.
"""

import errno
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, open_regular
from granularity.data.decoding import ENDINGS

ABSENT = "absent"
THREADS = 8
SMALL = 1 << 20  # bytes of the largest file that planning hashes
LARGEST = 64 << 30  # bytes of the largest file that a job hashes, such as weights; sparse files can have any size
SINGLE = frozenset(ending[1:].encode() for ending in ENDINGS)
LEFT_OUT = b"lost+found"  # at the root of a disk, readable only by its administrator
GONE = (errno.ENOENT, errno.ELOOP)  # deleted meanwhile, or a broken link


def names(root: Path) -> str:
    """Return a digest of all paths below a folder, and of size and time of all files except single images.

    A replaced image with the same name does not change it; the stages that read images compare checksums. 16
    hexadecimal digits; :data:`ABSENT` if the folder does not exist. Raise GranularityError if a folder cannot be read.
    """
    return _digest(root, every=False)


def stats(root: Path) -> str:
    """Return a digest like :func:`names`, with size and time of every file; a minute per million on a network disk."""
    return _digest(root, every=True)


def state(file: Path | str) -> str:
    """Return a digest that changes with a file: of its content or, if it is large, of size, inode and ctime."""
    try:
        with open_regular(file) as stream:
            found = os.fstat(stream.fileno())
            known_by = b"%d %d %d" % (found.st_size, found.st_ino, found.st_ctime_ns)  # `cp -p` keeps size and time
            digest = hashlib.sha256(known_by) if found.st_size > SMALL else hashlib.file_digest(stream, "sha256")
    except (GranularityError, OSError):
        return ABSENT
    return digest.hexdigest()[:16]


def contents(files: Iterable[Path | str]) -> dict[str, str]:
    """Return the SHA-256 of files by path; :data:`ABSENT` if missing. GranularityError: not a file, or too large."""
    digests = {}
    for file in map(str, files):
        try:
            with open_regular(file) as stream:
                if os.fstat(stream.fileno()).st_size > LARGEST:
                    raise GranularityError(f"{file}: is larger than {LARGEST:,} bytes, the limit for such a file")
                digests[file] = hashlib.file_digest(stream, "sha256").hexdigest()
        except MissingError:
            digests[file] = ABSENT
        except OSError as error:
            raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
    return digests


def _digest(root: Path, every: bool) -> str:
    total, first_names = hashlib.sha256(), {}
    level = [(b"", os.fsencode(root))]
    with ThreadPoolExecutor(THREADS) as pool:
        while level:
            below = []
            listings = pool.map(partial(_listed, every=every), (path for _, path in level))
            for (name, path), (identity, digest, folders) in zip(level, listings, strict=True):
                if identity is None and not name:
                    return ABSENT
                first = first_names.setdefault(identity or name, name)
                if first == name:
                    total.update(name + b"\0" + digest)
                    below += [(name + b"/" + folder, path + b"/" + folder) for folder in folders]
                else:
                    total.update(name + b"\0" + first + b"\0")
            level = below
    return total.hexdigest()[:16]


def _listed(folder: bytes, every: bool) -> tuple[tuple[int, int] | None, bytes, list[bytes]]:
    """Return device and inode of a folder (None if it is gone), the digest of its files, and its subfolders."""
    lines, folders = [], []
    try:
        status = os.stat(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(b".") and entry.name != LEFT_OUT:
                    line = _line(entry, every)
                    (folders if line is None else lines).append(line or entry.name)
    except OSError as error:
        if error.errno in GONE:
            return None, b"", []
        path, reason = os.fsdecode(error.filename or folder), error.strerror or error
        raise GranularityError(
            f"{path}: cannot be read ({reason}); give permission, or move it out of samples.root"
        ) from None
    return (status.st_dev, status.st_ino), hashlib.sha256(b"\0\0".join(sorted(lines))).digest(), sorted(folders)


def _line(entry: os.DirEntry, every: bool) -> bytes | None:
    """Return a file's part of the digest: its name and, unless it is an image, size and time; None for folders."""
    name = entry.name if not every and entry.name.rpartition(b".")[2].lower() in SINGLE else entry.name + b"\0"
    try:
        if entry.is_dir():
            return None
        return name if name == entry.name else name + _size_and_time(entry.stat())
    except OSError as error:
        if error.errno in GONE:
            return name
        raise


def _size_and_time(found: os.stat_result) -> bytes:
    return b"%d %d" % (found.st_size, found.st_mtime_ns)
