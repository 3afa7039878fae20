"""Where results lie: immutable folders, each under the key of all that it is made from, and names that lead to them.

    results/.store/cluster/3f2a.../     a generation: written once, published by one rename, deleted by `gc` alone
    results/.store/.work/cluster-3f2a...  what an unfinished job of that key has saved
    results/.store/.new/                private folders of writers
    results/.store/.aside/              generations that were found damaged
    results/digits/train-300/cluster/whole-30          a link to a generation: the name that people browse
    results/digits/train-300/cluster/whole-30.stamp    its kind and digest: all that Snakemake sees

A failing job, a change of the configuration and its way back, a kill at any instant: each leaves every generation as
it was. A stamp's bytes follow from the result's digest alone, so what is made again alike reruns nothing after it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.progress import say

STORE = ".store"
RESULTS = "results"
MANIFEST = "manifest.json"
STAMP = ".stamp"
WORK, NEW, ASIDE, CLAIMS = ".work", ".new", ".aside", ".claims"


def store_of(output: Path) -> Path:
    """The store of a result: `.store` in the nearest folder above it that has one or is called `results`.

    A result elsewhere has its store beside it.
    """
    parents = Path(os.path.abspath(output)).parents
    for parent in parents:
        if parent.name == STORE:
            return parent
        if parent.name == RESULTS or os.path.isdir(parent / STORE):
            return parent / STORE
    return parents[0] / STORE


def generation(store: Path, kind: str, key: str) -> Path:
    """The folder of a generation, whether it exists or not."""
    return store / kind / key


def is_name(path: Path) -> bool:
    """Whether something is a link to a generation, be that still there or not."""
    return path.is_symlink() and Path(os.path.abspath(path.parent / path.readlink())).parent.parent.name == STORE


def is_place_of(folder: Path, kind: str, key: str) -> bool:
    """Whether a folder may hold a result: all may that are no generation, and that generation."""
    kind_folder = folder.parent
    is_generation = kind_folder.parent.name == STORE and not kind_folder.name.startswith(".")
    return not is_generation or (kind_folder.name, folder.name) == (kind, key)


def all_of(store: Path) -> Iterator[Path]:
    """The folders of all generations, sorted."""
    with contextlib.suppress(FileNotFoundError):
        for kind in sorted(store.iterdir()):
            if not kind.name.startswith("."):
                yield from sorted(path for path in kind.iterdir() if not path.name.startswith("."))


def work_folder(store: Path, kind: str, key: str) -> Path:
    """Where an unfinished job saves its work; beside it a note says what for."""
    return store / WORK / f"{kind}-{key}"


def open_work(folder: Path, output: Path) -> None:
    """Make the folder of a job's work, or take up what an earlier job has left there."""
    folder.mkdir(parents=True, exist_ok=True)
    _note(folder).write_text(name_in(folder.parents[1], output), encoding="utf-8")
    for torn in folder.glob(".*"):  # checkpoints that a kill left half written
        torn.unlink(missing_ok=True)


def close_work(folder: Path) -> None:
    """Delete the work of a job whose result is published, if there is any."""
    if os.path.lexists(folder):
        remove(folder)
    _note(folder).unlink(missing_ok=True)


def works_of(store: Path) -> dict[Path, str]:
    """The folders of unfinished work, and the name of the result that each is for (see :func:`name_in`)."""
    folders = [path for path in sorted((store / WORK).glob("*-*")) if path.is_dir()]
    return {path: _note(path).read_text(encoding="utf-8") if _note(path).exists() else "" for path in folders}


def _note(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.for")


def name_in(store: Path, output: Path) -> str:
    """What a store calls the name of a result: its path from the store, the same from every host and checkout."""
    return os.path.relpath(output.parent.resolve() / output.name, store.resolve())


def folder_of(path: str | Path) -> Path:
    """The folder that a path names: the folder itself, its manifest, or its stamp."""
    path = Path(path)
    if path.name == MANIFEST:
        return path.parent
    return path.with_name(path.name.removesuffix(STAMP)) if path.name.endswith(STAMP) else path


def stamp_of(output: Path) -> Path:
    return output.with_name(output.name + STAMP)


def stamp_text(kind: str, digest: str) -> str:
    return f"{kind} {digest}\n"


# ---------------------------------------------------------------- writing


def publish(folder: Path, target: Path, durable: bool = True) -> bool:
    """Move a writer's folder to its place, whole and on the disk; False where another writer was quicker."""
    for path in (*folder.rglob("*"), folder):
        if path.is_file():
            path.chmod(path.stat().st_mode & 0o7555)  # written once
        if durable:
            _to_disk(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        return False
    if durable:
        _to_disk(target.parent)
    return True


def put_aside(folder: Path, why: str) -> None:
    """Take a damaged generation out of the way; it is kept until `gc`."""
    store = folder.parents[1]
    (store / ASIDE).mkdir(parents=True, exist_ok=True)
    place = store / ASIDE / f"{folder.parent.name}-{folder.name}-{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        folder.rename(place)
        say(f"{why}; kept in {place} until `granularity gc`, and made again")


def point(output: Path, target: Path, kind: str, digest: str) -> None:
    """Let a name lead to a generation, and stamp it."""
    lead(output, target)
    write_atomically(stamp_of(output), stamp_text(kind, digest).encode())
    _to_disk(output.parent)


def lead(output: Path, target: Path) -> None:
    """Let a name lead to a generation."""
    refuse_to_hide(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.is_symlink() and output.resolve() == target.resolve():
        return
    # From where the name really lies: a folder above may itself be a link.
    towards = os.path.relpath(target.resolve(), output.parent.resolve())
    temporary = _beside(output)
    try:
        temporary.symlink_to(towards)
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)


def refuse_to_hide(output: Path) -> None:
    """Raise a GranularityError where something else than a name of a result lies; an OSError where no name can lie."""
    with contextlib.suppress(FileNotFoundError):
        _beside(stamp_of(output)).lstat()  # the longest name that will be written there
    leads_nowhere = output.is_symlink() and not output.exists()
    if os.path.lexists(output) and not is_name(output) and not leads_nowhere:
        raise GranularityError(
            f"{output}: something lies where the name of a result should be; move it, or choose another --output"
        )


def write_atomically(path: Path, data: bytes) -> None:
    """Write one file so that a reader, or a process killed at any moment, never sees half of it."""
    temporary = _beside(path)
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A name for a file that will take the place of another."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # two nodes may have the same process id


def is_torn(path: Path) -> bool:
    """Whether a path has a name from :func:`_beside`: where nobody writes, a killed process left it there."""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}", path.name) is not None


def remove(folder: Path) -> None:
    """Delete a folder of a store; moved away first, as somebody may still write in it."""
    store = next(parent for parent in folder.parents if parent.name == STORE)
    (store / NEW).mkdir(parents=True, exist_ok=True)
    doomed = store / NEW / secrets.token_hex(8)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
