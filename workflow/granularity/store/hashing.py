"""SHA-256 of files, at the speed of the disk, and once per machine.

What was hashed is recorded in the user's own cache folder (`granularity/hashes/HOST` in `$XDG_CACHE_HOME` or
`~/.cache`), with what the system says of the file: device, inode, size and the times of its last changes. As long as
these five are the same, the record stands for the file. A record that is missing, damaged or somebody else's means
that the file is hashed (:mod:`granularity.store.kept`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.store import kept
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
    # Its other times may change: another job may just give it a second name, or take one away.
    if _as_state(before)[:4] != _as_state(after)[:4]:
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
        name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()
    except OSError:
        return None
    machine = re.sub(r"[^\w.-]|^\.+", "_", host()) or "_"
    return kept.place("hashes", machine, f"{name}.json")


def _read(folder: Path) -> dict[str, tuple[list[int], str]]:
    """What the record says: name -> state, SHA-256; nothing where it is missing, damaged or somebody else's."""
    files = kept.read(_record(folder))
    return files if isinstance(files, dict) else {}


def _write(folder: Path, entries: Mapping[str, tuple[_State, str]]) -> None:
    """Add entries to the record."""
    if entries:
        files = {**_read(folder), **{name: [list(state), digest] for name, (state, digest) in entries.items()}}
        kept.write(_record(folder), files, folder=os.path.realpath(folder))
