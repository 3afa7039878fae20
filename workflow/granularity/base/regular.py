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
STEP = 1 << 16  # bytes
LARGEST_TEXT = 64 << 20  # bytes: a list with a line for each of a million images
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
            size = os.fstat(stream.fileno()).st_size
            data = stream.read(size + 1) if size <= most_bytes else b""  # Python finds room for all that it is told
            while data and size < len(data) <= most_bytes and (more := stream.read(STEP)):  # it grows, as in /proc
                data += more
        except OSError as error:
            raise _unreadable(path, error) from None
    if max(size, len(data)) > most_bytes:
        raise GranularityError(f"{path}: is larger than {most_bytes:,} bytes, and no such file should be")
    return data


def read_text(path: str | Path, most_bytes: int = LARGEST_TEXT, what: str = "text in UTF-8") -> str:
    """The text of a regular file, or of a link to one, without a byte order mark.

    Args:
        what: what the file should hold, in messages.

    Raises:
        MissingError: there is no such file.
        GranularityError: see :func:`read_regular`; or it is not UTF-8.
    """
    try:
        return read_regular(path, most_bytes).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise GranularityError(f"{path}: is no {what}") from None


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
