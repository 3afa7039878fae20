"""Identify this workflow: the installed version, and the commit of its checkout."""

import contextlib
import importlib.metadata
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parents[1]


def revision() -> str:
    """Return `version 0.2.0` for pages; in a checkout also `, commit 0123456789`, and ` + changes` if files differ."""
    parts = []
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        parts.append(f"version {importlib.metadata.version('granularity')}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    of_checkout = {"cwd": HERE, "env": environment | {"GIT_OPTIONAL_LOCKS": "0"}, "capture_output": True, "text": True}
    queries = ("ls-files --error-unmatch __init__.py", "describe --always --exclude=* --abbrev=10 --dirty")
    # A package installed below someone's own repository is not tracked by it.
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        _, commit = (subprocess.run(["git", *query.split()], **of_checkout, check=True).stdout for query in queries)
        parts.append(f"commit {commit.strip().replace('-dirty', ' + changes')}")
    return ", ".join(parts) or "of unknown version"
