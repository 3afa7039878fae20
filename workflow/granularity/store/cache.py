"""Sharing embeddings, clusterings and label spaces between workflows and users.

`snakemake --cache` names the folder that all of them can write, in GRANULARITY_CACHE. An entry is keyed by everything
that decides its bytes: kind, parameters, the contents of all inputs, the code, and the versions of the packages. It is
copied, and the copy is verified against its manifest, before it is used; a corrupt entry is removed and made again.

(Snakemake's own cache compares inputs by their files, in which manifests have measured costs, and verifies nothing.)
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from pathlib import Path

from granularity.base.progress import say
from granularity.store.provenance import versions_digest


def entry(kind: str, key: str) -> Path | None:
    """The place of an artifact in the cache; None without a cache."""
    cache = os.environ.get("GRANULARITY_CACHE")
    if not cache:
        return None
    return Path(cache) / kind / f"{key}-{versions_digest()}"


def copy_in(place: Path, folder: Path) -> bool:
    """Copy an entry into a writer's folder; False where there is none. What was copied is yet to be verified."""
    try:
        _copy(place, folder)
    except OSError:  # none, or it was removed meanwhile
        _empty(folder)
        return False
    return True


def discard(place: Path, folder: Path, why: str) -> None:
    """Remove a corrupt entry, and the copy of it."""
    shutil.rmtree(place, ignore_errors=True)
    fate = (
        "it cannot be removed from the cache; the result is" if os.path.exists(place) else "removed from the cache, and"
    )
    say(f"{why}; {fate} made again")
    _empty(folder)


def store(output: Path, place: Path) -> None:
    """Put a published artifact into the cache. That it cannot be is said, and is no failure."""
    if os.path.exists(place):
        return
    temporary = place.with_name(f".{place.name}-{secrets.token_hex(8)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        _copy(output, temporary)
        _permit(place.parents[1], place.parent, temporary, *temporary.rglob("*"))
        temporary.rename(place)
    except OSError as error:
        if not os.path.exists(place):  # or another workflow was quicker
            say(f"{place}: cannot be written ({error}); the result is not shared")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copy the files in a folder, and no links: without them, the copy of an entry that has some is found corrupt."""
    os.listdir(source)  # an OSError where it is no folder, which rglob would not mind
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir()
        elif path.is_file() and not path.is_symlink():
            shutil.copyfile(path, place)


def _permit(cache: Path, *paths: Path) -> None:
    """Let whoever may write in the cache read these, and remove them if they are corrupt, whatever the umask."""
    mode = stat.S_IMODE(cache.stat().st_mode) & ~stat.S_ISVTX
    for path in paths:
        if path.stat().st_uid == os.geteuid():
            path.chmod(mode if path.is_dir() else mode & 0o666)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
