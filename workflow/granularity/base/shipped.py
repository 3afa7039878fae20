"""Files shipped with the workflow, used if the working directory has none of the same name.

Results record such a path as it was given, so ids do not depend on where the workflow lies.
"""

import os
from pathlib import Path

HERE = Path(__file__).parents[3]  # the repository


class Shipped(str):
    """The absolute path of a file, and the relative path `given` for it."""

    given: str


def located(path: str) -> str:
    """Return the path, or the workflow's file of that name if only that exists."""
    own = os.path.join(HERE, path)
    if os.path.isabs(path) or os.path.exists(path) or not os.path.isfile(own):
        return path
    found = Shipped(own)
    found.given = path
    return found


def given(path: str) -> str:
    """Return the path as it was before :func:`located`."""
    return getattr(path, "given", path)
