"""Where results lie: immutable folders, each under the key of all that it is made from, and names that lead to them."""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.store import lock

PARTS = ("run", "measured")  # kinds of single runs, which the results of jobs hold
DAY = 86400.0  # seconds
STORE = ".store"
RESULTS = "results"
MANIFEST = "manifest.json"
STAMP = ".stamp"
WORK, NEW, ASIDE, LOCKS = ".work", ".new", ".aside", ".locks"
KIND, KEY, DIGEST = r"[a-z][a-z0-9_]*", r"[0-9a-f]{32}", r"[0-9a-f]{64}"  # forms of names: see `inside`
GENERATION, ANY = f"{KIND}/{KEY}", r"(?s:.+)"


def store_of(output: Path) -> Path:
    """The store of a result: `.store` in the nearest folder above that has one or is called `results`, or beside it."""
    parents = Path(os.path.abspath(output)).parents
    for parent in parents:
        if parent.name == STORE:
            return parent
        if parent.name == RESULTS or os.path.isdir(parent / STORE):
            return parent / STORE
    return parents[0] / STORE


def is_plain(name: object, form: str = ANY) -> bool:
    """Whether a name has a form and no part that is empty, hidden or leads above."""
    return isinstance(name, str) and bool(re.fullmatch(form, name)) and not re.search(r"(^|/)(\.|/|$)|\0", name)


def inside(folder: Path, name: str, where: object, form: str = ANY) -> Path:
    """The path below a folder that a name of others leads to, from a manifest, an archive or a table (`where`).

    Raises a GranularityError where the name is not plain (:func:`is_plain`), or links lead elsewhere or into a store.
    """
    if not is_plain(name, form):
        raise GranularityError(f"{where}: {name}: nothing of that name may lie in {folder}")
    path, base = folder / name, folder.resolve()
    real = (path.parent if is_name(path) else path).resolve()
    if not real.is_relative_to(base) or STORE in real.relative_to(base).parts:
        raise GranularityError(f"{where}: {path} is beyond {folder}, by a link; put the folder itself there")
    return path


def generation(store: Path, kind: str, key: str) -> Path:
    """The folder of a result; a GranularityError where no result may lie there, or a link does."""
    return inside(store, f"{kind}/{key}/{MANIFEST}", store, f"{GENERATION}/{MANIFEST}").parent


def all_of(store: Path) -> Iterator[Path]:
    """The folders of all generations, sorted."""
    for kind in (path for path in within(store) if is_plain(path.name, KIND)):
        yield from (path for path in within(kind) if is_plain(path.name, KEY) and not _linked(path))


def within(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing where there is none, or a link in a store."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [] if folder.parent.name == STORE and _linked(folder) else sorted(folder.iterdir())
    return []


def _linked(path: Path) -> bool:
    """Whether something in a store is a link, which is named and never followed."""
    if path.is_symlink():
        say(f"{path}: a link, which is not followed; put into a store what it leads to, or delete it")
    return path.is_symlink()


def lock_file(store: Path, kind: str, key: str) -> Path:
    return store / LOCKS / f"{kind}-{key}.json"


# ---------------------------------------------------------------- the work of unfinished jobs


def work_folder(store: Path, kind: str, key: str) -> Path:
    """Where an unfinished job saves its work; a note beside it has the name of the result."""
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
        with new_folder(folder.parents[1]) as doomed, contextlib.suppress(FileNotFoundError):
            folder.rename(doomed / folder.name)  # first, as somebody may still write in it
    _note(folder).unlink(missing_ok=True)


def works_of(store: Path) -> dict[Path, str]:
    """The folders of unfinished work, and the name of the result that each is for (see :func:`name_in`)."""
    folders = [path for path in within(store / WORK) if path.is_dir()]
    return {path: _note(path).read_text("utf-8", "replace") if _note(path).exists() else "" for path in folders}


def _note(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.for")


# ---------------------------------------------------------------- names and stamps


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


def is_name(path: Path) -> bool:
    """Whether something is a link to a generation, be that still there or not."""
    return path.is_symlink() and Path(os.path.abspath(path.parent / path.readlink())).parent.parent.name == STORE


def point(output: Path, target: Path, kind: str, digest: str) -> None:
    """Let a name lead to a generation, and stamp it."""
    refuse_to_hide(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with _names_locked(target.parents[1], fcntl.LOCK_SH):
        if not target.is_dir():
            raise GranularityError(f"{target}: `granularity gc` has just deleted it; give the same command again")
        if not (output.is_symlink() and output.resolve() == target.resolve()):
            with replacing(output) as temporary:  # from where the name really lies: a folder above may itself be a link
                temporary.symlink_to(os.path.relpath(target.resolve(), output.parent.resolve()))
    write_atomically(stamp_of(output), stamp_text(kind, digest).encode())
    _to_disk(output.parent)


@contextlib.contextmanager
def _names_locked(store: Path, how: int) -> Iterator[None]:
    """Hold the lock of a store's names, where there are locks: shared, to give one; alone, to delete what has none."""
    descriptor = os.open(store, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def refuse_to_hide(output: Path) -> None:
    """Raise a GranularityError where something else than a result's name lies; an OSError where no name can lie."""
    with contextlib.suppress(FileNotFoundError):
        _beside(stamp_of(output)).lstat()  # the longest name that will be written there
    leads_nowhere = output.is_symlink() and not output.exists()
    if os.path.lexists(output) and not is_name(output) and not leads_nowhere:
        raise GranularityError(
            f"{output}: something lies where the name of a result should be; move it, or choose another --output"
        )


def find(root: str | Path) -> list[Path]:
    """Names of all artifacts at or below a folder, sorted; two of them may lead to one artifact."""
    return sorted(folder for folder, is_artifact, _ in _walk(Path(root)) if is_artifact)


def find_lost(root: str | Path) -> list[Path]:
    """Names of results at or below a folder, sorted, that lead to no artifact."""
    files = (folder / file for folder, is_artifact, files in _walk(Path(root)) if not is_artifact for file in files)
    names = {folder_of(path) for path in files if path.name.endswith(STAMP) or (is_name(path) and not is_torn(path))}
    return sorted(name for name in names if not os.path.lexists(name / MANIFEST))


def find_torn(root: str | Path) -> list[Path]:
    """What killed processes left beside the names of results at or below a folder, sorted."""
    files = (folder / file for folder, _, files in _walk(Path(root)) for file in files)
    return sorted(path for path in files if is_torn(path))


def _walk(root: Path) -> Iterator[tuple[Path, bool, list[str]]]:
    """Folders at or below one, links followed: each with whether it is an artifact, its files, folders left out."""
    if not root.exists():
        raise GranularityError(f"{root}: there is no such folder")

    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    seen: set[tuple[int, int]] = set()
    for folder, folders, files in os.walk(root, onerror=unreadable, followlinks=True):
        there = os.stat(folder)
        out = [name for name in folders if name == STORE or is_torn(Path(name))]
        is_artifact = MANIFEST in {*files, *folders}
        again = is_artifact or (there.st_dev, there.st_ino) in seen  # a link to a folder above, or to another one
        folders[:] = [] if again else [name for name in folders if name not in out]
        seen.add((there.st_dev, there.st_ino))
        yield Path(folder), is_artifact, [*files, *out]


# ---------------------------------------------------------------- writing


@contextlib.contextmanager
def new_folder(store: Path) -> Iterator[Path]:
    """A private folder of a writer; what is not published is deleted."""
    folder = store / NEW / secrets.token_hex(8)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
    aside = folder.parents[1] / ASIDE / f"{folder.parent.name}-{folder.name}-{secrets.token_hex(4)}"
    aside.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
        say(f"{why}; kept in {aside} until `granularity gc`, and made again")


def write_atomically(path: Path, data: bytes) -> None:
    """Write one file so that a reader, or a process killed at any moment, never sees half of it."""
    with replacing(path) as temporary, temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name for what is to take the place of another file."""
    temporary = _beside(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # two nodes may have the same process id


def is_torn(path: Path) -> bool:
    """Whether a path has a name from :func:`_beside`: where nobody writes, a killed process left it there."""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}", path.name) is not None


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- what a store can do without: `granularity gc`


class Found(NamedTuple):
    """Something that may be deleted: its folder or file, the bytes it takes, and why nothing needs it."""

    path: Path
    size: int
    why: str
    days: float  # since anything was written there


def needless(root: Path, days: float) -> list[Found]:
    """What no name below a folder leads to, nothing named is made from and no live writer has, older than `days`."""
    store = root / STORE
    if not store.is_dir():
        raise GranularityError(f"{root}: has no {STORE}; name a folder of results, such as results")
    live, now = lock.living(store / LOCKS), time.time()
    every, found, staying = (
        [],
        [],
        {},
    )  # of each file, how many of its names would stay: its room is free after the last
    for path, why in _without_need(root, store, live):
        stats = [one.lstat() for one in (path, *(() if path.is_symlink() else path.rglob("*")))]
        every.append(((now - max(one.st_mtime for one in stats)) / DAY, path, why, stats))
    for age, path, why, stats in sorted(every, key=lambda one: -one[0]):
        size = 0
        for one in (one for one in stats if not stat.S_ISDIR(one.st_mode)):
            file = one.st_dev, one.st_ino
            staying[file] = staying.get(file, one.st_nlink) - 1
            size += 0 if staying[file] else one.st_size
        found += [Found(path, size, why, age)] if age >= days else []
    return sorted(found, key=lambda one: -one.size)


def delete(root: Path, found: list[Found]) -> list[Found]:
    """Delete what :func:`needless` found, a while ago, unless a name or a writer needs it by now; returns what went."""
    store = root / STORE
    with new_folder(store) as doomed, _names_locked(store, fcntl.LOCK_EX):
        live = {name for name, one in lock.all_in(store / LOCKS).items() if lock.seems_alive(one)}
        still = {path for path, _ in _without_need(root, store, live)}
        gone = [one for one in found if one.path in still]
        for number, one in enumerate(gone):
            if one.path.parent.name == WORK:
                _note(one.path).unlink(missing_ok=True)
            if one.path.is_dir() and not one.path.is_symlink():
                one.path.rename(doomed / str(number))  # deleted when the names are free again
            else:
                one.path.unlink(missing_ok=True)
    return gone


def _without_need(root: Path, store: Path, live: set[str]) -> Iterator[tuple[Path, str]]:
    needed = closure(path.resolve() for path in find(root))
    for folder in all_of(store):
        # With any live writer a single run is kept: it may be of a job that has not published its result.
        of_live = f"{folder.parent.name}-{folder.name}" in live or (live and folder.parent.name in PARTS)
        if folder.resolve() not in needed and not of_live:
            made, was = _said(folder), ", nor can it be read"
            with contextlib.suppress(KeyError, TypeError):
                was = f" any more; made {made['cost']['started']} as {made['name']}"
            yield folder, f"no name leads to it{was}"
    for folder, name in works_of(store).items():
        if folder.name not in live:
            yield folder, f"saved by an unfinished job of {os.path.normpath(store / name)}"
    for folder in within(store / ASIDE):
        yield folder, "was found damaged, and put aside"
    for path in () if live else (*within(store / NEW), *find_torn(root)):
        yield path, "left by a writer that was killed"
    for file in within(store / LOCKS):
        if file.suffix == ".json" and file.stem not in live:
            yield file, "lock of a writer that was killed"


def closure(generations: Iterable[Path]) -> set[Path]:
    """Some generations and all that they were made from."""
    needed: set[Path] = set()
    todo = [*generations]
    while todo:
        folder = todo.pop()
        if folder not in needed:
            needed.add(folder)
            with contextlib.suppress(KeyError, TypeError, AttributeError):  # a manifest may say anything
                todo += [(folder / entry["path"]).resolve() for entry in _said(folder)["inputs"].values()]
    return needed


def _said(folder: Path) -> dict[str, Any]:
    """The manifest of a generation, of whatever version; nothing where it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / MANIFEST).read_bytes())
        return found if isinstance(found, dict) else {}
    return {}
