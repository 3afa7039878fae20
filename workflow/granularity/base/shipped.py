"""Files that come with the workflow: found in its own folder where the working directory has none of that name.

A path that is found so is written into results as it was given: ids do not depend on where the workflow lies.
"""

import os
from pathlib import Path

HERE = Path(__file__).parents[3]  # the repository


class Shipped(str):
    """Where a file lies, and the relative path that it was `given` by."""

    given: str


def located(path: str) -> str:
    """The path itself, or that of a file of the workflow's, if there is one and none in the working directory."""
    own = os.path.join(HERE, path)
    if os.path.isabs(path) or os.path.exists(path) or not os.path.isfile(own):
        return path
    found = Shipped(own)
    found.given = path
    return found


def given(path: str) -> str:
    """The path as it was before :func:`located`."""
    return getattr(path, "given", path)
