"""Find sources, measures and other extensions by name, in the package or in users' files (docs/development.md)."""

import functools
import importlib
import importlib.util
import os
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
    "picture": "granularity.stages.report.pictures",
}
_own: dict[str, dict[str, ModuleType]] = {room: {} for room in ROOMS}  # room -> name -> the user's file
_folders: list[str] = []  # of these files, importable as a script's own folder is


def load(files: Iterable[str | Path]) -> None:
    """Load the user's files as extensions, and forget those of an earlier call. They may import files beside them."""
    _forget()
    for file in (Path(located(str(file))) for file in files):
        module = _import(file)
        room = getattr(module, "EXTENDS", None)
        if room not in ROOMS:
            raise GranularityError(f"{file}: must define EXTENDS as one of {', '.join(map(repr, ROOMS))}")
        for name in getattr(module, "SEVERAL", [file.stem]):
            if name in names(room):
                raise GranularityError(f"{file}: there is already a {room} named '{name}'; rename the file")
            _own[room][name] = module


def names(room: str) -> list[str]:
    """Return the names in a room: in the order of its package's `ORDER`, then alphabetically, then the user's own."""
    return [*_packaged(room), *_own[room]]


@functools.cache
def _packaged(room: str) -> tuple[str, ...]:
    package = importlib.import_module(ROOMS[room])
    files = [info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")]
    found = sorted([*files, *getattr(package, "FILES", ())])
    first = [name for name in getattr(package, "ORDER", ()) if name in found]
    return (*first, *(name for name in found if name not in first))


def find(room: str, name: str) -> Any:
    """Return a room's extension by name: a module, or one of several objects in it. GranularityError: unknown."""
    module = _own[room].get(name) or importlib.import_module(code(room, name))
    return getattr(module, "SEVERAL", {}).get(name, module)


def code(room: str, name: str) -> str:
    """Return where an extension's code is, without importing it: a dotted module, or the path of the user's file."""
    if name in _own[room]:
        return _own[room][name].__file__
    if name not in names(room):
        raise GranularityError(f"there is no {room} '{name}'; there are {', '.join(names(room))}")
    files = getattr(importlib.import_module(ROOMS[room]), "FILES", {})
    return f"{ROOMS[room]}.{files.get(name, name)}"


def own_files() -> list[str]:
    """Return the paths of the user's files that are loaded."""
    return list(dict.fromkeys(module.__file__ for known in _own.values() for module in known.values()))


def _forget() -> None:
    for modules in _own.values():
        modules.clear()
    while _folders:  # another folder may have files with the same names
        folder = _folders.pop()
        sys.path.remove(folder)
        for name, module in [*sys.modules.items()]:
            top, file = os.path.join(folder, name.partition(".")[0]), getattr(module, "__file__", None) or ""
            if file == f"{top}.py" or file.startswith(top + os.sep):
                del sys.modules[name]


def _import(file: Path) -> ModuleType:
    name = f"granularity_extension_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise GranularityError(f"extensions: {file}: there is no such Python file")
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    sys.modules[name] = module
    if (folder := str(file.parent.resolve())) not in sys.path:
        _folders.append(folder)
        sys.path.append(folder)  # last: an installed package is never hidden
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GranularityError(f"extensions: {file}: cannot be imported ({type(error).__name__}: {error})") from error
    return module
