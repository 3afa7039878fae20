"""What leaves the house: networks, label spaces, histories (docs/exports.md); each whole or not at all."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from granularity.base.errors import GranularityError


@contextlib.contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A temporary name for a file or a folder that is called `target` once it is written, where nothing lies."""
    if os.path.lexists(target):
        raise GranularityError(f"{target}: is there already, and an export replaces nothing; choose another --to")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}")
    try:
        yield temporary
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.unlink(missing_ok=True)
