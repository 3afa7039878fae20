"""Sharing embeddings, clusterings and label spaces between workflows and users.

`snakemake --cache` names the folder, in GRANULARITY_CACHE. An entry lies under its key, as in a store, and is copied
before it is used; the copy is verified against its manifest, and the manifest against those whom this user believes
(:mod:`granularity.store.trust`). What is refused is named, and the result is made here.

(Snakemake's own cache compares inputs by their files and verifies nothing.)
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.store import generations, trust, writer
from granularity.store.artifacts import MANIFEST, Artifact

SIGNATURE = "manifest.sig"
LARGEST = 2**28  # bytes of a manifest


def place_of(kind: str, key: str) -> Path | None:
    """The place of a result in the cache; None without a cache."""
    cache = os.environ.get("GRANULARITY_CACHE")
    return generations.generation(Path(cache), kind, key) if cache else None


def fetch(store: Path, kind: str, key: str) -> Artifact | None:
    """Bring a result from the cache into a store; None where the cache has none that is sound and believed."""
    place = place_of(kind, key)
    if place is None or not os.path.isdir(place):
        return None
    folder = store / generations.NEW / secrets.token_hex(8)
    folder.mkdir(parents=True)
    try:
        wrong = _copy_in(place, folder)
        if wrong is None:
            copy = Artifact.peek(folder)
            wrong = next(copy.corrupt(anew=True), None)
            if wrong is None and (copy.kind, copy.manifest["key"]) != (kind, key):
                wrong = f"{place}: is another result than its place says"
            if wrong is None:
                return writer.publish(folder, store, copy.manifest)
    except GranularityError as error:
        wrong = str(error)
    except OSError as error:
        if not place.is_dir():  # it was removed meanwhile
            return None
        wrong = f"{error.filename}: {error.strerror or error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"{wrong.replace(str(folder), str(place))}; this entry of the cache is not used, and the result is made here")
    if place.stat().st_uid == os.geteuid():
        shutil.rmtree(place, ignore_errors=True)
    return None


def store(artifact: Artifact) -> None:
    """Put a result into the cache. That it cannot be is said, and is no failure."""
    place = place_of(artifact.kind, artifact.manifest["key"])
    if place is None or os.path.exists(place):
        return
    temporary = place.with_name(f".{place.name}-{secrets.token_hex(8)}")
    try:
        signature = trust.sign((artifact.folder / MANIFEST).read_bytes())
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name in (*artifact.manifest["files"], MANIFEST):
            file = temporary / name
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact.folder / name, file)
        if signature is not None:
            (temporary / SIGNATURE).write_bytes(signature)
        _permit(place.parents[1], place.parent, temporary)
        temporary.rename(place)
    except (OSError, GranularityError) as error:  # the latter where there is something wrong with one's key
        if not os.path.exists(place):  # or another workflow was quicker
            say(f"{place}: cannot be written ({error}); the result is not shared")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy_in(place: Path, folder: Path) -> str | None:
    """Copy the manifest, and what it lists; returns why it is not believed, if it is not."""
    text, about = _read(place / MANIFEST)
    signature = None
    with contextlib.suppress(FileNotFoundError):
        signature, _ = _read(place / SIGNATURE)
    if (why := trust.believed(text, signature, about.st_uid, about.st_mode)) is not None:
        return f"{place / MANIFEST}: not believed: {why}"
    (folder / MANIFEST).write_bytes(text)
    for name, entry in Artifact.peek(folder).manifest["files"].items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with _open(place / name) as source, file.open("wb") as target:
            if os.fstat(source.fileno()).st_size != entry["bytes"]:
                return f"{place / name}: corrupt (another size than the manifest says)"
            shutil.copyfileobj(source, target, 2**20)
    return None


def _read(file: Path) -> tuple[bytes, os.stat_result]:
    with _open(file) as stream:
        return stream.read(LARGEST), os.fstat(stream.fileno())


def _open(file: Path):
    """Open a regular file and no link: whoever may write in the cache may have put anything there."""
    stream = open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise GranularityError(f"{file}: no regular file")
    return stream


def _permit(cache: Path, kind: Path, entry: Path) -> None:
    """Let whoever may write in the cache add entries, and read this one, whatever the umask; write it may nobody."""
    mode = stat.S_IMODE(cache.stat().st_mode) & ~stat.S_ISVTX
    if kind.stat().st_uid == os.geteuid():
        kind.chmod(mode)
    for path in (entry, *entry.rglob("*")):
        path.chmod(mode & 0o755 if path.is_dir() else mode & 0o444)
