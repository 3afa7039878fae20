"""Files that are images by their names."""

from __future__ import annotations

import os
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.data.endings import ENDINGS


def below(folder: Path) -> list[Path]:
    """All images below a folder, in alphabetical order; hidden files and folders are left out.

    Raises:
        GranularityError: a folder cannot be read, or a name is not UTF-8.
    """

    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    found = []
    for at, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]  # thumbnails, checkpoints, trash
        named = [Path(at, name) for name in files if not name.startswith(".")]
        found += [file for file in named if file.suffix.lower() in ENDINGS]
    for file in found:
        if any("\ud800" <= character <= "\udfff" for character in str(file)):  # Python's stand-ins for such bytes
            raise GranularityError(f"{str(file)!r}: its name is not UTF-8; rename it")
    return sorted(found)
