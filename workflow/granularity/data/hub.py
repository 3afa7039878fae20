"""Find the Hugging Face commit of files, from huggingface_hub's cache or `hf download`'s FILE.metadata."""

import contextlib
import re
from itertools import islice
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular

COMMIT = re.compile("[0-9a-f]{40}")
MOST = 1000  # most files to read
LARGEST = 4096  # most bytes of a file


def commit(path: Path) -> str | None:
    """Return the hub's commit of a downloaded file or folder; None if unknown, or if its files are from several."""
    for place in (path.absolute(), path.resolve()):
        for parent in (place, *place.parents):
            if parent.parent.name == "snapshots" and COMMIT.fullmatch(parent.name):
                return parent.name
    found = set()
    for file in islice((path / ".cache" / "huggingface" / "download").glob("**/*.metadata"), MOST):
        with contextlib.suppress(GranularityError):
            found.add(read_regular(file, LARGEST).partition(b"\n")[0].strip().decode("ascii", "replace"))
    return found.pop() if len(found) == 1 and COMMIT.fullmatch(min(found)) else None
