"""The digest of the code that makes a result, and the packages that count for it.

Snakemake does not see an edit to an imported module. Each manifest therefore holds the digest of the science behind
its stage: the import closure of the stage's module, and of what its options chose by name (one source, one family,
...), within this package. Editing `cluster/stage.py` reruns clustering and what follows.

Only science counts. How results are stored, where they are computed, what is planned and how it is looked at does not
decide a result's bytes; where that ever changes them, :data:`RESULT_VERSION` is raised by hand. Neither do the records
of stages: options reach a stage as parameters, which are compared with every manifest.

Packages count by one rule: those that this code imports, and those that these compute with (:data:`PACKAGES`), with
their versions, and Python's. A new version of one is as an edit of the code: the results are made again.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import platform
import sys
from pathlib import Path
from typing import NamedTuple

from granularity.store import kept

PACKAGE = "granularity"
ROOT = Path(__file__).parents[1]
# Raise it when a change below base/, store/, machine/ or data formats changes the bytes of results.
RESULT_VERSION = 4
SCIENCE = ("stages", "learning", "data", "claims")  # rooms that decide bytes
OPTIONS = ("options", "clip_options", "cost")  # files in them that only plan and check


# Imported name -> packages whose versions decide what it computes. A test holds that none is missing.
PACKAGES = {
    "PIL": ("pillow",),
    "faiss": ("faiss-cpu", "faiss-gpu", "numpy"),
    "jinja2": ("Jinja2", "MarkupSafe"),
    "markupsafe": ("MarkupSafe",),
    "matplotlib": ("matplotlib",),
    "numpy": ("numpy",),
    "open_clip": ("open_clip_torch", "torch", "timm", "torchvision"),  # torchvision resizes and crops
    "pandas": ("pandas", "numpy"),
    "pyarrow": ("pyarrow",),
    "safetensors": ("safetensors",),
    "scipy": ("scipy", "numpy"),
    "sklearn": ("scikit-learn", "scipy", "numpy"),
    "timm": ("timm", "torch"),
    "torch": ("torch",),
    "torchvision": ("torchvision", "torch"),
}
# Imported by the science, and without a say in a result's numbers: of what is fetched, the bytes count.
SILENT = ("huggingface_hub", "pydantic", "pydantic_core", "tqdm", "yaml")


@functools.cache
def packages(*names: str) -> dict[str, str]:
    """Versions of what some modules or files compute with: Python, and the packages installed here that they import."""
    imported = {other.split(".")[0] for name in import_closure(*names) for other in _read(_path(name)).imports}
    wanted = set()
    for name in imported - {PACKAGE, *SILENT} - sys.stdlib_module_names:
        wanted |= set(PACKAGES.get(name) or _distributions().get(name, ()))
    found = {name: version for name in sorted(wanted) if (version := _version(name)) is not None}
    return {"python": ".".join(platform.python_version_tuple()[:2]), **found}


@functools.cache
def _distributions() -> dict[str, list[str]]:
    """Packages by the name that they are imported by; asked only for what a file of the user's imports."""
    return dict(importlib.metadata.packages_distributions())


@functools.cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def code_digest(*names: str) -> str:
    """Digest of some modules or files, and of all the science in this package that they import, directly or not.

    Comments, docstrings and layout do not count: the digest is over the parsed code. Files in a package that are not
    Python (templates, tables) count as they are.

    Args:
        names: dotted names, such as ``granularity.stages.cluster.stage``, or paths of the user's files.

    Returns:
        The first 16 hexadecimal digits of a SHA-256.
    """
    digest = hashlib.sha256(f"{RESULT_VERSION}\n".encode())
    for name in sorted(import_closure(*names)):
        path = _path(name)
        # A file of the user's counts by its content, wherever it lies.
        digest.update(f"{name if _is_ours(name) else path.name}\n{_read(path).code}\n".encode())
        if name.endswith(".stage"):
            for data in sorted(path.parent.iterdir()):
                if data.is_file() and data.suffix != ".py":
                    digest.update(data.name.encode() + data.read_bytes())
    return digest.hexdigest()[:16]


def import_closure(*names: str) -> set[str]:
    """Names of the science that importing some modules or files can bring in, imports inside functions included."""
    found, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        todo += [other for other in _read(_path(name)).imports if is_science(other)]
    return found


def is_science(name: str) -> bool:
    """Whether a dotted name is a module of this package that decides the bytes of results."""
    room, *rest = name.split(".")[1:] or [""]
    return room in SCIENCE and bool(rest) and rest[-1] not in OPTIONS and _path(name).is_file() and _counts(name)


def _counts(name: str) -> bool:
    """A package's `__init__` is a record or a table, unless it is below a stage, as the worlds of the theory are."""
    return _path(name).name != "__init__.py" or len(name.split(".")) > 3


def _is_ours(name: str) -> bool:
    return not name.endswith(".py")


def _path(name: str) -> Path:
    if not _is_ours(name):
        return Path(name)
    base = ROOT.joinpath(*name.split(".")[1:])
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


class _Source(NamedTuple):
    imports: list[str]  # modules, or names in them
    code: str  # in canonical form


@functools.cache
def _read(path: Path) -> _Source:
    """A file of Python. Parsing all files of the science takes more than a second: the user's cache keeps it.

    It is known there by its content, by the Python that parsed it, and by this file, which says how.
    """
    content = path.read_bytes()
    known_by = hashlib.sha256(b"\0".join([sys.version.encode(), _this_file(), content])).hexdigest()
    file = kept.place("parsed", f"{known_by}.json")
    if (found := kept.read(file)) is not None:
        return _Source(**found)
    source = _parsed(content)
    kept.write(file, source._asdict())
    return source


@functools.cache
def _this_file() -> bytes:
    return Path(__file__).read_bytes()


def _parsed(content: bytes) -> _Source:
    tree = ast.parse(content)
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant)
            and isinstance(node.body[0].value.value, str)
        ):
            node.body[0] = ast.Pass()
    return _Source(names, ast.unparse(tree))
