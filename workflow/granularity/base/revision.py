"""Which workflow this is: the commit of its checkout, or the version that is installed."""

import importlib.metadata
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parents[1]


def revision() -> str:
    """For pages: `commit 0123456789`, with `+ changes` where files differ; outside a checkout `version 0.1.0`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    of_checkout = {"cwd": HERE, "env": own | {"GIT_OPTIONAL_LOCKS": "0"}, "capture_output": True, "text": True}
    asked = ("ls-files --error-unmatch __init__.py", "describe --always --exclude=* --abbrev=10 --dirty")
    try:  # a package installed below someone's own repository is no file of it
        _, found = (subprocess.run(["git", *one.split()], **of_checkout, check=True).stdout for one in asked)
    except (OSError, subprocess.CalledProcessError):
        return f"version {importlib.metadata.version('granularity')}"
    return f"commit {found.strip().replace('-dirty', ' + changes')}"
