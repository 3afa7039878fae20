"""Files that are images by their names."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.data.endings import ENDINGS

MOST_LINKS = 100


def below(folder: Path) -> list[Path]:
    """All images below a folder, in alphabetical order; hidden files and folders are left out.

    Links to images and to folders are followed, wherever they lead.

    Raises:
        GranularityError: a folder cannot be read, is a link to one that it lies in or is met again and again, or a
            name is not UTF-8.
    """

    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    found = []
    above = {str(folder): ()}  # the folders that each one lies in, by device and inode
    times: Counter[tuple[int, int]] = Counter()
    for at, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        there = os.stat(at)
        here = there.st_dev, there.st_ino
        if here in above[at]:
            raise GranularityError(f"{at}: is a link to a folder that it lies in, which never ends; remove it")
        times[here] += 1
        if times[here] > MOST_LINKS:
            raise GranularityError(f"{at}: links lead to the same folder more than {MOST_LINKS} times; remove some")
        within = (*above.pop(at), here)
        folders[:] = [name for name in folders if not name.startswith(".")]  # thumbnails, checkpoints, trash
        above |= {os.path.join(at, name): within for name in folders}
        named = [Path(at, name) for name in files if not name.startswith(".")]
        found += [file for file in named if file.suffix.lower() in ENDINGS]
    for file in found:
        if any("\ud800" <= character <= "\udfff" for character in str(file)):  # Python's stand-ins for such bytes
            raise GranularityError(f"{str(file)!r}: its name is not UTF-8; rename it")
    return sorted(found)
