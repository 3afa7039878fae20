"""Which commit of the Hugging Face hub files are of, by huggingface_hub's cache or `hf download`'s FILE.metadata."""

import contextlib
import re
from itertools import islice
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular

COMMIT = re.compile("[0-9a-f]{40}")
MOST = 1000  # files looked at
LARGEST = 4096  # bytes of one


def commit(path: Path) -> str | None:
    """The commit that a file or folder is of, where it was downloaded from the hub and all of it is of one commit."""
    for place in (path.absolute(), path.resolve()):
        for parent in (place, *place.parents):
            if parent.parent.name == "snapshots" and COMMIT.fullmatch(parent.name):
                return parent.name
    found = set()
    for file in islice((path / ".cache" / "huggingface" / "download").glob("**/*.metadata"), MOST):
        with contextlib.suppress(GranularityError):
            found.add(read_regular(file, LARGEST).partition(b"\n")[0].strip().decode("ascii", "replace"))
    return found.pop() if len(found) == 1 and COMMIT.fullmatch(min(found)) else None
