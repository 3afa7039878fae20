"""What is found by name, such as sources and measures: files of the package or of the user's (docs/development.md)."""

import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.shipped import located

ROOMS = {
    "source": "granularity.stages.samples.sources",
    "family": "granularity.stages.hierarchy.families",
    "objective": "granularity.learning.training.objectives",
    "encoder": "granularity.learning.encoders",
    "network": "granularity.learning.networks.architectures",
    "optimiser": "granularity.learning.training.optimisers",
    "augmentation": "granularity.learning.data.augmentations",
    "measure": "granularity.stages.measure.measures",
    "world": "granularity.stages.theory.worlds",
    "study": "granularity.stages.verdicts.studies",
    "section": "granularity.stages.report.sections",
}
_own: dict[str, dict[str, ModuleType]] = {room: {} for room in ROOMS}  # room -> name -> the user's file


def load(files: Iterable[str | Path]) -> None:
    """Make files of the user's own known; those of an earlier call are forgotten."""
    for known in _own.values():
        known.clear()
    for file in (Path(located(str(file))) for file in files):
        module = _import(file)
        room = getattr(module, "EXTENDS", None)
        if room not in ROOMS:
            raise GranularityError(f"{file}: must say what it is: EXTENDS = one of {', '.join(map(repr, ROOMS))}")
        for name in getattr(module, "SEVERAL", [file.stem]):
            if name in names(room):
                raise GranularityError(f"{file}: there is a {room} of the name '{name}' already; rename the file")
            _own[room][name] = module


def names(room: str) -> list[str]:
    """Names of all that a room has: as its package's `ORDER` says, then alphabetically, then the user's own."""
    return [*_packaged(room), *_own[room]]


@functools.cache
def _packaged(room: str) -> tuple[str, ...]:
    package = importlib.import_module(ROOMS[room])
    files = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")]
    found = sorted([*files, *getattr(package, "FILES", ())])
    first = [name for name in getattr(package, "ORDER", ()) if name in found]
    return (*first, *(name for name in found if name not in first))


def find(room: str, name: str) -> Any:
    """What a room has under a name: a module, or one of several things in it (GranularityError: nothing)."""
    module = _own[room].get(name) or importlib.import_module(code(room, name))
    return getattr(module, "SEVERAL", {}).get(name, module)


def code(room: str, name: str) -> str:
    """The code of an extension, without importing it: a dotted module, or the path of the user's file."""
    if name in _own[room]:
        return _own[room][name].__file__
    if name not in names(room):
        raise GranularityError(f"there is no {room} '{name}'; there are {', '.join(names(room))}")
    files = getattr(importlib.import_module(ROOMS[room]), "FILES", {})
    return f"{ROOMS[room]}.{files.get(name, name)}"


def own_files() -> list[str]:
    """Paths of the user's files that are loaded."""
    return list(dict.fromkeys(module.__file__ for known in _own.values() for module in known.values()))


def _import(file: Path) -> ModuleType:
    name = f"granularity_extension_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise GranularityError(f"extensions: {file}: there is no such Python file")
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GranularityError(f"extensions: {file}: cannot be imported ({type(error).__name__}: {error})") from error
    return module
