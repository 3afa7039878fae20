"""SHA-256 of files, at the speed of the disk, and once per machine.

What was hashed is recorded in the user's own cache folder (`granularity/hashes/HOST` in `$XDG_CACHE_HOME` or
`~/.cache`), with what the system says of the file: device, inode, size and the times of its last changes. As long as
these five are the same, the record stands for the file. A record that is missing, damaged or somebody else's means
that the file is hashed; one that cannot be written is not missed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.store.claim import host

BUFFER_BYTES = 2**20
# Two changes within one tick of a file system's clock leave the same times: only a file at rest can be known by them.
SETTLED_SECONDS = 2.0

_State = tuple[int, int, int, int, int]  # device, inode, bytes, mtime and ctime in nanoseconds
_buffers = threading.local()


def digests(paths: Sequence[Path]) -> list[str]:
    """SHA-256 of files, in hexadecimal and in the order given, hashed on all CPUs that this process may use.

    Raises:
        GranularityError: a link, no regular file, unreadable, or changed while it was read.
    """
    # The largest first, so that no CPU is left alone with one at the end. A file that is missing is told by its reader.
    order = sorted(range(len(paths)), key=lambda index: _size(paths[index]), reverse=True)
    workers = min(len(paths), len(os.sched_getaffinity(0)))
    if workers < 2:
        return [_digest(path) for path in paths]
    with ThreadPoolExecutor(workers) as pool:
        waiting = {index: pool.submit(_digest, paths[index]) for index in order}
        try:
            return [waiting[index].result() for index in range(len(paths))]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def digest_of(path: Path) -> str:
    """SHA-256 of one file, or of the file that a link leads to."""
    return _digest(Path(os.path.realpath(path)))


def hashes(folder: Path, files: Iterable[str], anew: bool = False) -> dict[str, str]:
    """SHA-256 of files of a folder, by name: from the record where it has them, and else hashed and recorded.

    Args:
        files: their names relative to the folder.
        anew: hash all of them, whatever the record says.

    Raises:
        GranularityError: as :func:`digests` does.
    """
    files = list(files)
    found = {} if anew else known(folder, files)
    rest = [name for name in files if name not in found]
    # The state before it is hashed is what is recorded. If the file changes afterwards, no record fits it.
    before, now = {name: _state(folder / name) for name in rest}, time.time_ns()
    made = dict(zip(rest, digests([folder / name for name in rest]), strict=True))
    settled = {name: state for name, state in before.items() if state and _is_settled(state, now)}
    _write(folder, {name: (state, made[name]) for name, state in settled.items()})
    return {name: found.get(name) or made[name] for name in files}


def known(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """SHA-256, by name, of those files of a folder that are as they were when they were recorded."""
    recorded = _read(folder)
    return {
        name: recorded[name][1]
        for name in files
        if name in recorded and _state(folder / name) == tuple(recorded[name][0])
    }


def remember(folder: Path, written: Mapping[str, str]) -> None:
    """Record the SHA-256 of files that the caller has just written itself and hashed, by name.

    They are recorded as they are now, however young: the caller knows that nobody else has touched them. For files of
    others use :func:`hashes`.
    """
    states = {name: _state(folder / name) for name in written}
    _write(folder, {name: (state, written[name]) for name, state in states.items() if state})


def forget(folder: Path) -> None:
    """Delete the record of a folder."""
    file = _record(folder)
    if file is not None:
        with contextlib.suppress(OSError):
            file.unlink()


def _digest(path: Path) -> str:
    try:
        # A pipe would make an ordinary open wait for ever.
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            before = os.fstat(opened)
            if not stat.S_ISREG(before.st_mode):
                raise GranularityError(f"{path}: no regular file; put the file itself there")
            digest = _digest_of(opened)
            after = os.fstat(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GranularityError(f"{path}: a link where a file should be; put the file itself there") from None
        reason = error.strerror or error
        raise GranularityError(f"{path}: cannot be read ({reason}); see that it is there and readable") from None
    if _as_state(before) != _as_state(after):
        raise GranularityError(f"{path}: has changed while it was read; try again when nobody writes it")
    return digest


def _digest_of(opened: int) -> str:
    if not hasattr(_buffers, "view"):
        _buffers.view = memoryview(bytearray(BUFFER_BYTES))
    buffer, digest = _buffers.view, hashlib.sha256()
    while count := os.readv(opened, [buffer]):
        digest.update(buffer[:count])
    return digest.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


# ---------------------------------------------------------------- the record


def _state(path: Path) -> _State | None:
    """What a regular file is known by; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return _as_state(found) if stat.S_ISREG(found.st_mode) else None


def _as_state(found: os.stat_result) -> _State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_settled(state: _State, now: int) -> bool:
    return max(state[3:]) < now - SETTLED_SECONDS * 1e9


def _record(folder: Path) -> Path | None:
    """Where the record of a folder lies; None where this user has no folder for it."""
    try:
        root = user_cache()
        name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()
    except (OSError, RuntimeError):
        return None
    machine = re.sub(r"[^\w.-]|^\.+", "_", host()) or "_"
    return root / "hashes" / machine / f"{name}.json"


def user_cache() -> Path:
    """The folder of what this user's jobs keep for later ones.

    Raises:
        RuntimeError: the user has no home.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # As the XDG specification has it, a relative path counts as none.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "granularity"


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(folder: Path) -> dict[str, tuple[list[int], str]]:
    """What the record says: name -> state, SHA-256; nothing where it is missing, damaged or somebody else's."""
    file = _record(folder)
    try:
        if file is None or not all(_is_own(place.lstat()) for place in file.parents[:3]):
            return {}
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode) or not _is_own(found):
                return {}
            recorded = json.loads(stream.read())
        files = recorded["files"]
        if recorded["sha256"] != _sha256_of(files):
            return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return files


def _write(folder: Path, entries: Mapping[str, tuple[_State, str]]) -> None:
    """Add entries to the record."""
    file = _record(folder)
    if not entries or file is None:
        return
    files = {**_read(folder), **{name: [list(state), digest] for name, (state, digest) in entries.items()}}
    temporary = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    with contextlib.suppress(OSError):
        for place in reversed(file.parents[:3]):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not all(_is_own(place.lstat()) for place in file.parents[:3]):
            return
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as stream:
                json.dump({"folder": os.path.realpath(folder), "files": files, "sha256": _sha256_of(files)}, stream)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)


def _sha256_of(files: object) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
