"""Files that somebody else put there: opened only if they are regular files.

A FIFO or a terminal would block, and a device such as /dev/zero never ends; links are followed, so a link to one of
them does the same. A library that opens a file by itself is given its name after :func:`check_regular`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from granularity.base.errors import GranularityError

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class MissingError(GranularityError):
    """There is no such file."""


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file, or a link to one, for reading bytes; never blocks.

    Raises:
        MissingError: there is no such file.
        GranularityError: it cannot be read, or it is a folder, a FIFO, a socket or a device.
    """
    handle = -1
    try:
        handle = os.open(path, FLAGS)
        _check(path, os.fstat(handle))
        stream, handle = os.fdopen(handle, "rb"), -1
        return stream
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    finally:
        if handle >= 0:
            os.close(handle)


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """The contents of a regular file, or of a link to one, of at most `most_bytes` bytes.

    Raises:
        MissingError: there is no such file.
        GranularityError: see :func:`open_regular`; or it is larger.
    """
    with open_regular(path) as stream:
        try:
            data = stream.read(most_bytes + 1) if os.fstat(stream.fileno()).st_size <= most_bytes else None
        except OSError as error:
            raise _unreadable(path, error) from None
    if data is None or len(data) > most_bytes:
        raise GranularityError(f"{path}: is larger than {most_bytes:,} bytes, and no such file should be")
    return data


def check_regular(path: str | Path) -> os.stat_result:
    """What is to be known of a regular file, or of a link to one, without opening it.

    Raises:
        MissingError: there is no such file.
        GranularityError: see :func:`open_regular`.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    _check(path, found)
    return found


def _check(path: str | Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise GranularityError(f"{path}: is {what} where a file should be")


def _unreadable(path: str | Path, error: OSError | ValueError) -> GranularityError:
    kind = MissingError if isinstance(error, FileNotFoundError | NotADirectoryError) else GranularityError
    return kind(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})")
