"""Read untrusted files: only regular files of a plausible size are opened; links to them are followed.

Otherwise raise :class:`GranularityError`: :class:`MissingError` if the file does not exist, :class:`UnreadableError` if
the system does not let it be read.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from granularity.base.errors import GranularityError
from granularity.base.shipped import located

LARGEST_TEXT = 64 << 20  # bytes: enough for a list with a line for each of a million images


class MissingError(GranularityError):
    """Raised if a file does not exist."""


class UnreadableError(GranularityError):
    """Raised if the system does not let a file be read, which says nothing about its content."""


def check_regular(path: str | Path) -> os.stat_result:
    """Return the status of a regular file (`os.stat`) without opening it."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
        raise GranularityError(f"{path}: is {what}, not a file")
    return found


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading bytes; if it is missing here, open the workflow's file of that name."""
    try:
        check_regular(path)
    except MissingError:
        if (path := located(missing := str(path))) == missing:
            raise
    try:
        return open(path, "rb")
    except OSError as error:
        raise unreadable(path, error) from None


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """Return the contents of a regular file; refuse one larger than `most_bytes` bytes."""
    with open_regular(path) as stream:
        try:
            if os.fstat(stream.fileno()).st_size <= most_bytes:
                return stream.read()
        except OSError as error:
            raise unreadable(path, error) from None
    raise GranularityError(f"{path}: is larger than {most_bytes:,} bytes, the limit for such a file")


def read_text(path: str | Path, most_bytes: int = LARGEST_TEXT, what: str = "text in UTF-8") -> str:
    """Return the text of a regular UTF-8 file, without byte order mark; messages call its format `what`."""
    try:
        return read_regular(path, most_bytes).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise GranularityError(f"{path}: is no {what}") from None


def unreadable(path: str | Path, error: OSError | ValueError) -> GranularityError:
    """Return the error to raise for one of the system about a file."""
    kind = MissingError if isinstance(error, FileNotFoundError | NotADirectoryError) else UnreadableError
    return kind(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})")
