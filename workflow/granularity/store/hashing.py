"""SHA-256 of files, computed once per machine (docs/artifacts.md), and the user's cache folder that records them."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from granularity.base import regular
from granularity.base.errors import GranularityError
from granularity.store.lock import host

# Two changes within one tick of the file system's clock leave the same times, so only older times identify a content.
SETTLED_SECONDS = 2.0

_State = list[int]  # device, inode, bytes, mtime and ctime in nanoseconds


def user_cache() -> Path:
    """Return the folder for what jobs of this user keep: `granularity` in `$XDG_CACHE_HOME` or `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME", "")  # the XDG specification ignores relative paths
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "granularity"


def recall(*names: str) -> Any:
    """Read a value from the cache folder, such as `recall("parsed", "3f2a.json")`; None if it is missing or damaged."""
    try:
        said = json.loads(user_cache().joinpath(*names).read_bytes())
        return said["value"] if said["sha256"] == _sha256_of(said["value"]) else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None


def note(value: Any, *names: str) -> None:
    """Write a value to a file of the cache folder, atomically; failure is ignored."""
    with contextlib.suppress(OSError, RuntimeError):
        file = user_cache().joinpath(*names)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
        try:
            temporary.write_text(json.dumps({"value": value, "sha256": _sha256_of(value)}))
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)


def _sha256_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def digests(paths: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of files, in hexadecimal and in the given order, hashed on all CPUs that this process may use.

    Raise GranularityError for a link, a file that is not regular, or one that changes meanwhile, and the errors of
    :mod:`granularity.base.regular` for one that is missing or not readable.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(_digest, paths))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file; links are followed."""
    return _digest(Path(os.path.realpath(path)))


def hashes(folder: Path, files: Iterable[str], anew: bool = False) -> dict[str, str]:
    """Return the SHA-256 of files of a folder, by name: recorded ones, unless `anew`, others by :func:`digests`."""
    recorded, rested = ({} if anew else _read(folder)), time.time_ns() - SETTLED_SECONDS * 1e9
    # Record the state before hashing. If the file changes later, the record no longer matches.
    states = {name: _state(folder / name) for name in files}
    found = {name: recorded[name][1] for name, state in states.items() if state and recorded.get(name, [0])[0] == state}
    rest = [name for name in states if name not in found]
    made = dict(zip(rest, digests([folder / name for name in rest]), strict=True))
    _write(folder, {name: (states[name], made[name]) for name in rest if max(states[name][3:]) < rested})
    return {name: found.get(name) or made[name] for name in states}


def remember(folder: Path, written: Mapping[str, str]) -> None:
    """Record the SHA-256, by name, of files that only the caller has written, however recently."""
    _write(folder, {name: (state, digest) for name, digest in written.items() if (state := _state(folder / name))})


def _digest(path: Path) -> str:
    try:
        # An ordinary open of a pipe would block for ever.
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            before = os.fstat(opened)
            if not stat.S_ISREG(before.st_mode):
                raise GranularityError(f"{path}: is not a regular file; put the file itself there")
            with open(opened, "rb", 0, closefd=False) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            after = os.fstat(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GranularityError(f"{path}: is a link; put the file itself there") from None
        raise regular.unreadable(path, error) from None
    # Its ctime may change, because another job may add or remove a hard link.
    if _as_state(before)[:4] != _as_state(after)[:4]:
        raise GranularityError(f"{path}: changed while it was read; try again when nothing writes to it")
    return digest


def _state(path: Path) -> _State | None:
    with contextlib.suppress(OSError):
        found = path.lstat()
        return _as_state(found) if stat.S_ISREG(found.st_mode) else None
    return None


def _as_state(found: os.stat_result) -> _State:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _record(folder: Path) -> tuple[str, ...]:
    name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()
    return "hashes", re.sub(r"[^\w.-]|^\.+", "_", host()) or "_", f"{name}.json"


def _read(folder: Path) -> dict[str, Sequence]:  # name -> state, SHA-256
    return recall(*_record(folder)) or {}


def _write(folder: Path, entries: Mapping[str, Sequence]) -> None:
    if entries:
        note({**_read(folder), **entries}, *_record(folder))
