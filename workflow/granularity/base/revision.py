"""Identify this workflow: the installed version, and the commit of its checkout."""

import contextlib
import importlib.metadata
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parents[1]


def revision() -> str:
    """Return `version 0.2.0` for pages; in a checkout also `, commit 0123456789`, and ` + changes` if files differ."""
    found = []
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found.append(f"version {importlib.metadata.version('granularity')}")
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    of_checkout = {"cwd": HERE, "env": own | {"GIT_OPTIONAL_LOCKS": "0"}, "capture_output": True, "text": True}
    asked = ("ls-files --error-unmatch __init__.py", "describe --always --exclude=* --abbrev=10 --dirty")
    # A package installed below someone's own repository is not tracked by it.
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        _, said = (subprocess.run(["git", *one.split()], **of_checkout, check=True).stdout for one in asked)
        found.append(f"commit {said.strip().replace('-dirty', ' + changes')}")
    return ", ".join(found) or "of unknown version"
