"""Files that somebody else put there: opened only if they are regular files, of a size that such a file has.

Else a :class:`GranularityError` (:class:`MissingError` where there is no such file). Links to files are followed.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from granularity.base.errors import GranularityError
from granularity.base.shipped import located

LARGEST_TEXT = 64 << 20  # bytes: a list with a line for each of a million images


class MissingError(GranularityError):
    """There is no such file."""


def check_regular(path: str | Path) -> os.stat_result:
    """What is to be known of a regular file, without opening it."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
        raise GranularityError(f"{path}: is {what} where a file should be")
    return found


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading bytes; one that comes with the workflow, where there is none of its name here."""
    try:
        check_regular(path)
    except MissingError:
        if (path := located(missing := str(path))) == missing:
            raise
    try:
        return open(path, "rb")
    except OSError as error:
        raise _unreadable(path, error) from None


def read_regular(path: str | Path, most_bytes: int) -> bytes:
    """The contents of a regular file of at most `most_bytes` bytes; a larger one is refused."""
    with open_regular(path) as stream:
        try:
            if os.fstat(stream.fileno()).st_size <= most_bytes:
                return stream.read()
        except OSError as error:
            raise _unreadable(path, error) from None
    raise GranularityError(f"{path}: is larger than {most_bytes:,} bytes, and no such file should be")


def read_text(path: str | Path, most_bytes: int = LARGEST_TEXT, what: str = "text in UTF-8") -> str:
    """The text of a regular file in UTF-8, without a byte order mark; `what` it should hold, in messages."""
    try:
        return read_regular(path, most_bytes).decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise GranularityError(f"{path}: is no {what}") from None


def _unreadable(path: str | Path, error: OSError | ValueError) -> GranularityError:
    kind = MissingError if isinstance(error, FileNotFoundError | NotADirectoryError) else GranularityError
    return kind(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})")
