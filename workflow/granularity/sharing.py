"""Sharing embeddings, clusterings and label spaces between workflows and users.

The environment variable GRANULARITY_CACHE names a folder that all of them can write. An entry is keyed by everything
that decides its bytes: kind, parameters, the contents of all inputs, the code, and the versions of the packages. It is
copied, and the copy is verified against its manifest, before it is used; a corrupt entry is removed and made again.

(Snakemake's own cache compares inputs by their files, in which manifests have measured costs, and verifies nothing.)
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from pathlib import Path

from granularity.progress import say
from granularity.provenance import package_versions


def entry(kind: str, key: str) -> Path | None:
    """Where the cache has an artifact, or would have it; None without a cache."""
    cache = os.environ.get("GRANULARITY_CACHE")
    if not cache:
        return None
    versions = hashlib.sha256(repr(sorted(package_versions().items())).encode()).hexdigest()[:8]
    return Path(cache) / kind / f"{key}-{versions}"


def copy_in(place: Path, folder: Path) -> bool:
    """Copy an entry into a writer's folder; False where there is none. What was copied is yet to be verified."""
    try:
        shutil.copytree(place, folder, dirs_exist_ok=True)
    except (OSError, shutil.Error):  # none, or it was removed meanwhile
        _empty(folder)
        return False
    return True


def discard(place: Path, folder: Path, why: str) -> None:
    """Remove a corrupt entry, and the copy of it."""
    say(f"{why}; removed from the cache, and made again")
    shutil.rmtree(place, ignore_errors=True)
    _empty(folder)


def store(output: Path, place: Path) -> None:
    """Put a published artifact into the cache. That it cannot be is said, and is no failure."""
    if place.exists():
        return
    temporary = place.with_name(f".{place.name}-{secrets.token_hex(8)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(output, temporary)
        temporary.rename(place)
    except (OSError, shutil.Error) as error:
        if not place.exists():  # or another workflow was quicker
            say(f"{place}: cannot be written ({error}); the result is not shared")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
