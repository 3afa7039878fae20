"""Layout of results: immutable folders (generations), each named by its key, and links (names) that point to them."""

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

PARTS = ("run", "measured")  # kinds of single runs, of which jobs' results are composed
DAY = 86400.0  # seconds
STORE = ".store"
RESULTS = "results"
MANIFEST = "manifest.json"
STAMP = ".stamp"
WORK, NEW, ASIDE, LOCKS = ".work", ".new", ".aside", ".locks"
KIND, KEY, DIGEST = r"[a-z][a-z0-9_]*", r"[0-9a-f]{32}", r"[0-9a-f]{64}"  # see `inside`
GENERATION, ANY = f"{KIND}/{KEY}", r"(?s:.+)"


def store_of(output: Path) -> Path:
    """Return a result's store: `.store` in the nearest parent that has one or is called `results`, else beside it."""
    parents = Path(os.path.abspath(output)).parents
    for parent in parents:
        if parent.name == STORE:
            return parent
        if parent.name == RESULTS or os.path.isdir(parent / STORE):
            return parent / STORE
    return parents[0] / STORE


def is_plain(name: object, form: str = ANY) -> bool:
    """Return whether a name matches a form and no part of it is empty or begins with a dot."""
    return isinstance(name, str) and bool(re.fullmatch(form, name)) and not re.search(r"(^|/)(\.|/|$)|\0", name)


def inside(folder: Path, name: str, where: object, form: str = ANY) -> Path:
    """Return the path below a folder for an untrusted name from a manifest, archive or table (`where`, for messages).

    Raise GranularityError if the name is not plain (:func:`is_plain`), or if links lead elsewhere or into a store.
    """
    if not is_plain(name, form):
        raise GranularityError(f"{where}: {name}: no file of that name may be in {folder}")
    path, base = folder / name, folder.resolve()
    real = (path.parent if is_name(path) else path).resolve()
    if not real.is_relative_to(base) or STORE in real.relative_to(base).parts:
        raise GranularityError(f"{where}: {path} leads out of {folder} by a link; put the folder itself there")
    return path


def generation(store: Path, kind: str, key: str) -> Path:
    """Return the folder of a result. Raise GranularityError if kind or key is malformed or a link leads elsewhere."""
    return inside(store, f"{kind}/{key}/{MANIFEST}", store, f"{GENERATION}/{MANIFEST}").parent


def all_of(store: Path) -> Iterator[Path]:
    """Yield the folders of all generations, sorted."""
    for kind in (path for path in within(store) if is_plain(path.name, KIND)):
        yield from (path for path in within(kind) if is_plain(path.name, KEY) and not _linked(path))


def within(folder: Path) -> list[Path]:
    """Return the sorted contents of a folder; nothing if it does not exist or is a link inside a store."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [] if folder.parent.name == STORE and _linked(folder) else sorted(folder.iterdir())
    return []


def _linked(path: Path) -> bool:
    """Return whether a path in a store is a link; report it, because links are never followed there."""
    if path.is_symlink():
        say(f"{path}: is a link, which is not followed; move its target into the store, or delete the link")
    return path.is_symlink()


def lock_file(store: Path, kind: str, key: str) -> Path:
    return store / LOCKS / f"{kind}-{key}.json"


# ---------------------------------------------------------------- the work of unfinished jobs


def work_folder(store: Path, kind: str, key: str) -> Path:
    """Return where an unfinished job saves its work; a note beside it holds the name of the result."""
    return store / WORK / f"{kind}-{key}"


def open_work(folder: Path, output: Path) -> None:
    """Create the folder of a job's work, or reuse what an earlier job left there."""
    folder.mkdir(parents=True, exist_ok=True)
    _note(folder).write_text(name_in(folder.parents[1], output), encoding="utf-8")
    for torn in folder.glob(".*"):  # half-written checkpoints of a killed job
        torn.unlink(missing_ok=True)


def close_work(folder: Path) -> None:
    """Delete the saved work of a job whose result is published, if any."""
    if os.path.lexists(folder):
        with new_folder(folder.parents[1]) as doomed, contextlib.suppress(FileNotFoundError):
            folder.rename(doomed / folder.name)  # rename first, because somebody may still write in it
    _note(folder).unlink(missing_ok=True)


def works_of(store: Path) -> dict[Path, str]:
    """Return the folders of unfinished work, each with the name of its result (see :func:`name_in`)."""
    folders = [path for path in within(store / WORK) if path.is_dir()]
    return {path: _note(path).read_text("utf-8", "replace") if _note(path).exists() else "" for path in folders}


def _note(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.for")


# ---------------------------------------------------------------- names and stamps


def name_in(store: Path, output: Path) -> str:
    """Return a result's path relative to the store, which is the same on every host and in every checkout."""
    return os.path.relpath(output.parent.resolve() / output.name, store.resolve())


def folder_of(path: str | Path) -> Path:
    """Return the artifact folder for a path: to the folder itself, its manifest, or its stamp."""
    path = Path(path)
    if path.name == MANIFEST:
        return path.parent
    return path.with_name(path.name.removesuffix(STAMP)) if path.name.endswith(STAMP) else path


def stamp_of(output: Path) -> Path:
    return output.with_name(output.name + STAMP)


def stamp_text(kind: str, digest: str) -> str:
    return f"{kind} {digest}\n"


def is_name(path: Path) -> bool:
    """Return whether a path is a link to a generation, existing or not."""
    return path.is_symlink() and Path(os.path.abspath(path.parent / path.readlink())).parent.parent.name == STORE


def point(output: Path, target: Path, kind: str, digest: str) -> None:
    """Point a name to a generation and write its stamp."""
    refuse_to_hide(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with _names_locked(target.parents[1], fcntl.LOCK_SH):
        if not target.is_dir():
            raise GranularityError(f"{target}: `granularity gc` has just deleted it; run the same command again")
        if not (output.is_symlink() and output.resolve() == target.resolve()):
            real, store = target.resolve(), store_of(output).parent.resolve() / STORE
            if store.resolve() == real.parents[1]:  # through `.store`, which may itself be a link: see is_name
                real = store.joinpath(*real.parts[-2:])
            with replacing(output) as temporary:  # resolved, because a parent folder may itself be a link
                temporary.symlink_to(os.path.relpath(real, output.parent.resolve()))
    write_atomically(stamp_of(output), stamp_text(kind, digest).encode())
    _to_disk(output.parent)


@contextlib.contextmanager
def _names_locked(store: Path, how: int) -> Iterator[None]:
    """Lock a store's names, if there are locks: shared to add a name, exclusive to delete nameless results."""
    descriptor = os.open(store, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def refuse_to_hide(output: Path) -> None:
    """Raise GranularityError if anything but a result's name lies there, or OSError if no name can be created there."""
    with contextlib.suppress(FileNotFoundError):
        _beside(stamp_of(output)).lstat()  # the longest name that will be created there
    leads_nowhere = output.is_symlink() and not output.exists()
    if os.path.lexists(output) and not is_name(output) and not leads_nowhere:
        raise GranularityError(f"{output}: exists and is not a result; move it, or choose another --output")


def find(root: str | Path) -> list[Path]:
    """Return the sorted names of all artifacts at or below a folder; several may point to one artifact."""
    return sorted(folder for folder, is_artifact, _ in _walk(Path(root)) if is_artifact)


def find_lost(root: str | Path) -> list[Path]:
    """Return the sorted names of results at or below a folder that point to no artifact."""
    files = (folder / file for folder, is_artifact, files in _walk(Path(root)) if not is_artifact for file in files)
    names = {folder_of(path) for path in files if path.name.endswith(STAMP) or (is_name(path) and not is_torn(path))}
    return sorted(name for name in names if not os.path.lexists(name / MANIFEST))


def find_torn(root: str | Path) -> list[Path]:
    """Return temporary files that killed processes left at or below a folder, sorted."""
    files = (folder / file for folder, _, files in _walk(Path(root)) for file in files)
    return sorted(path for path in files if is_torn(path))


def moved(root: Path) -> dict[Path, Path]:
    """Return names below a folder of results that lead nowhere, as in a folder that was moved, with their results."""
    found = {name: root / STORE / Path(*name.readlink().parts[-2:]) for name in find_lost(root) if is_name(name)}
    return {name: folder for name, folder in found.items() if folder.is_dir()}


def _walk(root: Path) -> Iterator[tuple[Path, bool, list[str]]]:
    """Walk folders, following links; yield each with whether it is an artifact, and its files and skipped folders."""
    if not root.exists():
        raise GranularityError(f"{root}: there is no such folder")

    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    seen: set[tuple[int, int]] = set()
    for folder, folders, files in os.walk(root, onerror=unreadable, followlinks=True):
        status = os.stat(folder)
        out = [name for name in folders if name == STORE or is_torn(Path(name))]
        is_artifact = MANIFEST in {*files, *folders}
        again = is_artifact or (status.st_dev, status.st_ino) in seen  # reached before through a link
        folders[:] = [] if again else [name for name in folders if name not in out]
        seen.add((status.st_dev, status.st_ino))
        yield Path(folder), is_artifact, [*files, *out]


# ---------------------------------------------------------------- writing


@contextlib.contextmanager
def new_folder(store: Path) -> Iterator[Path]:
    """Provide a private folder for a writer; it is deleted afterwards unless published."""
    folder = store / NEW / secrets.token_hex(8)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, target: Path, durable: bool = True) -> bool:
    """Move a writer's folder to its final place, complete and flushed to disk; False if another writer was faster."""
    readable = folder.stat().st_mode & 0o444  # by whom the umask says; safetensors makes files for their owner alone
    for path in (*folder.rglob("*"), folder):
        if path.is_file():
            _protect(path, readable)
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


def _protect(path: Path, readable: int) -> None:
    """Make a file read-only; copy one that a colleague has written and may still write."""
    before = path.stat().st_mode
    if (mode := before & 0o7555 | readable) != before:
        try:
            path.chmod(mode)
        except PermissionError:
            if before & 0o222:
                with replacing(path) as own:
                    shutil.copyfile(path, own)
                    own.chmod(mode)


def put_aside(folder: Path, why: str) -> None:
    """Move a damaged generation out of the way; it is kept until `gc`."""
    aside = folder.parents[1] / ASIDE / f"{folder.parent.name}-{folder.name}-{secrets.token_hex(4)}"
    aside.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rename(aside)
        say(f"{why}; moved to {aside} until `granularity gc`, and recomputed")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it, even if this process is killed."""
    with replacing(path) as temporary, temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Provide a temporary path for writing; afterwards it replaces `path`."""
    temporary = _beside(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # random: two nodes may have the same process id


def is_torn(path: Path) -> bool:
    """Return whether a path is a temporary name from :func:`_beside`; without a writer, a killed process left it."""
    return re.fullmatch(r"\..+\.[0-9a-f]{16}", path.name) is not None


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- unneeded files in a store: `granularity gc`


class Found(NamedTuple):
    """A file or folder that may be deleted, the bytes this frees, and why nothing needs it."""

    path: Path
    size: int
    why: str
    days: float  # since anything was written there


def needless(root: Path, days: float) -> list[Found]:
    """List what no name below a folder, no named result and no live writer needs, unchanged for `days` days."""
    store = root / STORE
    if not store.is_dir():
        raise GranularityError(f"{root}: contains no {STORE}; name a folder of results, such as results")
    if lost := moved(root):
        say(f"{min(lost)}: leads to no result (names like it: {len(lost)}); was its folder moved? The results are kept")
    live, now = lock.living(store / LOCKS), time.time()
    candidates, leftovers, staying = (
        [],
        [],
        {},
    )  # per file: how many hard links would remain; the last one frees the space
    for path, why in _without_need(root, store, live):
        with contextlib.suppress(FileNotFoundError):  # a job has ended meanwhile, and deleted it
            stats = [item.lstat() for item in (path, *(() if path.is_symlink() else path.rglob("*")))]
            candidates.append(((now - max(item.st_mtime for item in stats)) / DAY, path, why, stats))
    for age, path, why, stats in sorted(candidates, key=lambda item: -item[0]):
        size = 0
        for item in (item for item in stats if not stat.S_ISDIR(item.st_mode)):
            file = item.st_dev, item.st_ino
            staying[file] = staying.get(file, item.st_nlink) - 1
            size += 0 if staying[file] else item.st_size
        leftovers += [Found(path, size, why, age)] if age >= days else []
    return sorted(leftovers, key=lambda item: -item.size)


def delete(root: Path, found: list[Found]) -> list[Found]:
    """Delete what :func:`needless` found, except what a name or a writer needs by now; return what was deleted."""
    store = root / STORE
    with new_folder(store) as doomed, _names_locked(store, fcntl.LOCK_EX):
        live = {name for name, item in lock.all_in(store / LOCKS).items() if lock.seems_alive(item)}
        still = {path for path, _ in _without_need(root, store, live)}
        gone = [item for item in found if item.path in still]
        for number, item in enumerate(gone):
            if item.path.parent.name == WORK:
                _note(item.path).unlink(missing_ok=True)
            if item.path.is_dir() and not item.path.is_symlink():
                item.path.rename(doomed / str(number))  # deleted after the lock on names is released
            else:
                item.path.unlink(missing_ok=True)
    return gone


def _without_need(root: Path, store: Path, live: set[str]) -> Iterator[tuple[Path, str]]:
    needed, works = closure(path.resolve() for path in (*find(root), *moved(root).values())), works_of(store)
    for folder in all_of(store):
        # Single runs are kept while any job lives, or is unfinished: it may not have published its result yet.
        unfinished = (live or works) and folder.parent.name in PARTS
        of_live = f"{folder.parent.name}-{folder.name}" in live or unfinished
        if folder.resolve() not in needed and not of_live:
            manifest, was = _said(folder), ", nor can it be read"
            with contextlib.suppress(KeyError, TypeError):
                was = f" any more; made {manifest['cost']['started']} as {manifest['name']}"
            yield folder, f"no name leads to it{was}"
    for folder, name in works.items():
        if folder.name not in live:
            yield folder, f"saved by an unfinished job of {os.path.normpath(store / name)}"
    for folder in within(store / ASIDE):
        yield folder, "was damaged, and moved aside"
    for path in () if live else (*within(store / NEW), *find_torn(root)):
        yield path, "left by a writer that was killed"
    for file in within(store / LOCKS):
        if file.suffix == ".json" and file.stem not in live:
            yield file, "lock of a writer that was killed"


def closure(generations: Iterable[Path]) -> set[Path]:
    """Return generations and all that they were made from, directly or not."""
    needed: set[Path] = set()
    todo = [*generations]
    while todo:
        folder = todo.pop()
        if folder not in needed:
            needed.add(folder)
            with contextlib.suppress(KeyError, TypeError, AttributeError):  # an unverified manifest may hold anything
                todo += [(folder / entry["path"]).resolve() for entry in _said(folder)["inputs"].values()]
    return needed


def _said(folder: Path) -> dict[str, Any]:
    """Return the manifest of a generation, of any version; empty if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / MANIFEST).read_bytes())
        return found if isinstance(found, dict) else {}
    return {}
