"""What a store can do without: `granularity gc`. Nothing else deletes a result, or the work of one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.store import artifacts, claim, generations, hashing
from granularity.store.artifacts import Artifact

DAY = 86400.0


@dataclass(frozen=True)
class Found:
    """Something that may be deleted: its folder or file, the bytes it takes, and why nothing needs it."""

    path: Path
    size: int
    why: str


def find(root: Path, days: float) -> list[Found]:
    """What the store of a folder of results can do without; the largest first.

    Kept are results that a name below the folder leads to and what those were made from, whatever is younger than
    `days`, and what live writers work on.

    Raises:
        GranularityError: there is no store.
    """
    store = root / generations.STORE
    if not store.is_dir():
        raise GranularityError(f"{root}: has no {generations.STORE}; name a folder of results, such as results")
    dead = claim.dead(store)
    live = {file.stem for file in _below(store / generations.CLAIMS) if file not in dead}
    found = [*_unnamed(root, store, live), *_unfinished(store, live), *_rest(root, store, live)]
    before = time.time() - days * DAY
    return sorted((one for one in found if _changed(one.path) <= before), key=lambda one: -one.size)


def delete(found: list[Found]) -> None:
    """Delete what :func:`find` found."""
    for one in found:
        hashing.forget(one.path)
        if one.path.parent.name == generations.WORK:
            generations.close_work(one.path)
        elif one.path.is_dir() and not one.path.is_symlink():
            generations.remove(one.path)
        else:
            one.path.unlink(missing_ok=True)


def _unnamed(root: Path, store: Path, live: set[str]) -> Iterator[Found]:
    needed: set[Path] = set()
    todo = [Path(os.path.realpath(path)) for path in artifacts.find(root, hidden=True)]
    while todo:
        folder = todo.pop()
        if folder in needed:
            continue
        needed.add(folder)
        with contextlib.suppress(GranularityError):
            inputs = Artifact.peek(folder).manifest["inputs"].values()
            todo += [Path(os.path.realpath(folder / entry["path"])) for entry in inputs]
    for folder in generations.all_of(store):
        if live and folder.parent.name in artifacts.PARTS:  # it may be of a job that has not published its result
            continue
        if folder.resolve() not in needed and f"{folder.parent.name}-{folder.name}" not in live:
            yield Found(folder, _size(folder), f"no name leads to it{_was(folder)}")


def _was(folder: Path) -> str:
    try:
        made = Artifact.peek(folder).manifest
    except GranularityError:
        return ", and its manifest cannot be read"
    return f" any more; made {made['cost']['started']} as {made['name']}"


def _unfinished(store: Path, live: set[str]) -> Iterator[Found]:
    for folder, name in generations.works_of(store).items():
        if folder.name not in live:
            yield Found(folder, _size(folder), f"saved by an unfinished job of {os.path.normpath(store / name)}")


def _rest(root: Path, store: Path, live: set[str]) -> Iterator[Found]:
    for folder in _below(store / generations.ASIDE):
        yield Found(folder, _size(folder), "was found damaged, and put aside")
    for path in () if live else (*_below(store / generations.NEW), *artifacts.find_torn(root)):
        yield Found(path, _size(path), "left by a writer that was killed")
    for file in _below(store / generations.CLAIMS):
        if file.stem not in live:
            yield Found(file, 0, "claim of a writer that was killed")


def _below(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(folder: Path) -> int:
    """Bytes that deleting a folder frees: files that another result has, too, do not count."""
    files = (path.lstat() for path in _within(folder) if not path.is_dir())
    return sum(about.st_size for about in files if about.st_nlink == 1)


def _changed(path: Path) -> float:
    """When something was last written in a folder or file (seconds since the epoch)."""
    return max((one.lstat().st_mtime for one in (path, *_within(path))), default=0.0)


def _within(path: Path) -> Iterator[Path]:
    """What a folder holds, whatever is below it; nothing of a link."""
    return iter(()) if path.is_symlink() else path.rglob("*")
