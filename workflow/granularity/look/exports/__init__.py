"""Exports for use elsewhere: networks, label spaces, histories (docs/exports.md); each complete or not written."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from granularity.base.errors import GranularityError


@contextlib.contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yield a temporary name for a file or folder; rename it to `target`, which must not exist, once it is written."""
    if os.path.lexists(target):
        raise GranularityError(f"{target}: exists already, and an export replaces nothing; choose another --to")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}")
    try:
        yield temporary
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.unlink(missing_ok=True)
