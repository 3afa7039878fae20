"""Small JSON files in the user's own cache folder: what was found out once, for later processes of the same user.

A file that is missing, damaged or somebody else's counts as none, and one that cannot be written is not missed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any


def user_cache() -> Path:
    """The folder of what this user's jobs keep for later ones: `granularity` in `$XDG_CACHE_HOME` or `~/.cache`.

    Raises:
        RuntimeError: the user has no home.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # As the XDG specification has it, a relative path counts as none.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "granularity"


def place(*names: str) -> Path | None:
    """Where a file lies in that folder; None where this user has none."""
    try:
        return user_cache().joinpath(*names)
    except (OSError, RuntimeError):
        return None


def read(file: Path | None) -> Any:
    """What a file holds, if it is whole and, with the folders that it is in, the user's own; else None."""
    try:
        if file is None or not all(_is_own(folder.lstat()) for folder in _folders(file)):
            return None
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode) or not _is_own(found):
                return None
            said = json.loads(stream.read())
        return said["value"] if said["sha256"] == _sha256_of(said["value"]) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write(file: Path | None, value: Any, **notes: str) -> None:
    """Write a file that nobody else can read or write, whole or not at all; `notes` are for who looks into it."""
    if file is None:
        return
    temporary = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    with contextlib.suppress(OSError):
        for folder in reversed(_folders(file)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not all(_is_own(folder.lstat()) for folder in _folders(file)):
            return
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as stream:
                json.dump({**notes, "value": value, "sha256": _sha256_of(value)}, stream)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)


def _folders(file: Path) -> list[Path]:
    """The folders that a file is in, up to that of the cache."""
    return [user_cache() / part for part in file.relative_to(user_cache()).parents]


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _sha256_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
