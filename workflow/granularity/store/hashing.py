"""SHA-256 of files, once per machine (docs/artifacts.md), and the user's own cache folder, which remembers them."""

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

from granularity.base.errors import GranularityError
from granularity.store.lock import host

# Two changes within one tick of a file system's clock leave the same times: only a file at rest can be known by them.
SETTLED_SECONDS = 2.0

_State = list[int]  # device, inode, bytes, mtime and ctime in nanoseconds


def user_cache() -> Path:
    """The folder of what this user's jobs keep for later ones: `granularity` in `$XDG_CACHE_HOME` or `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME", "")  # as the XDG specification has it, a relative path counts as none
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "granularity"


def recall(*names: str) -> Any:
    """The value in a file of that folder, such as `recall("parsed", "3f2a.json")`; None where there is no whole one."""
    try:
        said = json.loads(user_cache().joinpath(*names).read_bytes())
        return said["value"] if said["sha256"] == _sha256_of(said["value"]) else None
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None


def note(value: Any, *names: str) -> None:
    """Write such a file, whole or not at all; one that cannot be written is not missed."""
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
    """SHA-256 of files, in hexadecimal and in the order given, hashed on all CPUs that this process may use.

    Raises GranularityError: a link, no regular file, unreadable, or changed while it was read.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(_digest, paths))


def digest_of(path: Path) -> str:
    """SHA-256 of one file, or of the file that a link leads to."""
    return _digest(Path(os.path.realpath(path)))


def hashes(folder: Path, files: Iterable[str], anew: bool = False) -> dict[str, str]:
    """SHA-256 of files of a folder, by name: from the record, unless `anew`, or else as of :func:`digests`."""
    recorded, rested = ({} if anew else _read(folder)), time.time_ns() - SETTLED_SECONDS * 1e9
    # The state before it is hashed is what is recorded. If the file changes afterwards, no record fits it.
    states = {name: _state(folder / name) for name in files}
    found = {name: recorded[name][1] for name, state in states.items() if state and recorded.get(name, [0])[0] == state}
    rest = [name for name in states if name not in found]
    made = dict(zip(rest, digests([folder / name for name in rest]), strict=True))
    _write(folder, {name: (states[name], made[name]) for name in rest if max(states[name][3:]) < rested})
    return {name: found.get(name) or made[name] for name in states}


def remember(folder: Path, written: Mapping[str, str]) -> None:
    """Record the SHA-256, by name, of files, however young, that the caller has written and nobody else touched."""
    _write(folder, {name: (state, digest) for name, digest in written.items() if (state := _state(folder / name))})


def _digest(path: Path) -> str:
    try:
        # A pipe would make an ordinary open wait for ever.
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            before = os.fstat(opened)
            if not stat.S_ISREG(before.st_mode):
                raise GranularityError(f"{path}: no regular file; put the file itself there")
            with open(opened, "rb", 0, closefd=False) as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            after = os.fstat(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GranularityError(f"{path}: a link where a file should be; put the file itself there") from None
        reason = error.strerror or error
        raise GranularityError(f"{path}: cannot be read ({reason}); see that it is there and readable") from None
    # Its ctime may change: another job may just give it a second name, or take one away.
    if _as_state(before)[:4] != _as_state(after)[:4]:
        raise GranularityError(f"{path}: has changed while it was read; try again when nobody writes it")
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
