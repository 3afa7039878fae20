"""A folder of pages that one command makes, and in which it touches no other file."""

import json
from collections.abc import Mapping
from pathlib import Path

from granularity.base import strict_json
from granularity.base.errors import GranularityError
from granularity.store import place

MARKER = ".made-by-granularity-{}.json"  # lists the command's files


def made_before(to: Path, command: str) -> set[str]:
    """Return the files left by an earlier call; GranularityError if the folder was not made by this command."""
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return set()
    if not (marker := to / MARKER.format(command)).is_file():
        raise GranularityError(f"{to}: contains files that `granularity {command}` did not make; choose another --to")
    return set(filter(place.is_plain, strict_json.read_json(marker)))


def put(to: Path, files: Mapping[str, bytes], before: set[str], command: str) -> None:
    """Write the files, each atomically, and delete files of an earlier call that are no longer made."""
    for name in (name for name in files if name not in before and (to / name).exists()):
        raise GranularityError(f"{to / name}: was not made by `granularity {command}`; move it, or choose another --to")
    to.mkdir(parents=True, exist_ok=True)
    marker = to / MARKER.format(command)
    place.write_atomically(marker, json.dumps(sorted(before | files.keys())).encode())
    for name, data in files.items():
        path = place.inside(to, name, "--to")
        path.parent.mkdir(exist_ok=True)
        place.write_atomically(path, data)
    for name in before - files.keys():
        place.inside(to, name, marker).unlink(missing_ok=True)
    place.write_atomically(marker, json.dumps(sorted(files)).encode())
