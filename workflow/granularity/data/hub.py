"""What tells which commit of the Hugging Face hub files are of.

Layout: huggingface_hub's cache (models--ORG--NAME/snapshots/COMMIT/...), and what `hf download --local-dir` leaves
(.cache/huggingface/download/FILE.metadata, with the commit on its first line).
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular

COMMIT = re.compile("[0-9a-f]{40}")
METADATA = Path(".cache", "huggingface", "download")
MOST = 1000  # files looked at
LARGEST = 4096  # bytes of one


def commit(path: Path) -> str | None:
    """The commit that a file or folder is of, where it was downloaded from the hub and all of it is of one commit."""
    for place in (path.absolute(), path.resolve()):
        for parent in (place, *place.parents):
            if parent.parent.name == "snapshots" and COMMIT.fullmatch(parent.name):
                return parent.name
    left = (path / METADATA).glob("**/*.metadata") if (path / METADATA).is_dir() else ()
    found = {_first_line(file) for file in islice(left, MOST)}
    return found.pop() if len(found) == 1 else None


def _first_line(file: Path) -> str | None:
    try:
        line = read_regular(file, LARGEST).partition(b"\n")[0].strip().decode("ascii", "replace")
    except GranularityError:
        return None
    return line if COMMIT.fullmatch(line) else None
