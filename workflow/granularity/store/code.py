"""Digest of the code behind a result, and versions of the packages it computes with (docs/development.md)."""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from granularity.base.errors import GranularityError
from granularity.store import hashing

PACKAGE = "granularity"
DRIVER = "GRANULARITY_DRIVER"  # environment variable: root and digest of the package that Snakemake planned with
ROOT = Path(__file__).parents[1]
THIS_FILE = Path(__file__).read_bytes()  # decides how files are parsed
# Increase it when a change below base/, store/, machine/ or to data formats changes the bytes of results.
RESULT_VERSION = 4
SCIENCE = ("stages", "learning", "data", "claims")  # folders whose code determines the bytes of results
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
OPTIONS = ("options", "clip_options", "cost")  # files in these folders that only plan and check

# Imported name -> packages whose versions determine what it computes. A test checks that none is missing.
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
# Imported by scientific code without affecting a result's numbers; downloaded files count by their content.
SILENT = ("huggingface_hub", "pydantic", "pydantic_core", "tqdm", "yaml")


@functools.cache
def packages(*names: str) -> dict[str, str]:
    """Return the versions of Python and of the installed packages that modules or files import, directly or not."""
    imported = {other.split(".")[0] for name in import_closure(*names) for other in _read(_path(name)).imports}
    imported -= {PACKAGE, *SILENT, *sys.stdlib_module_names}
    wanted = {one for name in imported for one in PACKAGES.get(name) or _distributions().get(name, ())}
    found = {name: version for name in sorted(wanted) if (version := _version(name)) is not None}
    return {"python": ".".join(platform.python_version_tuple()[:2]), **found}


_distributions = functools.cache(importlib.metadata.packages_distributions)  # only for imports of a user's file


@functools.cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def code_digest(*names: str) -> str:
    """Return the digest of modules (dotted names) or users' files, of the scientific code here that they import,
    directly or not, and of local files that a user's file imports: 16 hexadecimal digits (docs/development.md).
    """
    digest = hashlib.sha256(f"{RESULT_VERSION}\n".encode())
    # A user's file counts by its content, wherever it lies.
    pairs = ((Path(name).name if name.endswith(".py") else name, name) for name in import_closure(*names))
    for label, name in sorted(pairs):
        path = _path(name)
        digest.update(f"{label}\n{_read(path).code}\n".encode())
        if name.endswith((".stage", ".report.pages")):  # templates and styles lie beside them
            for data in sorted(path.parent.iterdir()):
                if data.is_file() and data.suffix != ".py":
                    digest.update(data.name.encode() + data.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def package_digest() -> str:
    """Return the digest of all code of this package."""
    digest = hashlib.sha256(f"{RESULT_VERSION}\n".encode())
    for path in sorted(ROOT.rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\n{_read(path).code}\n".encode())
    return digest.hexdigest()[:16]


def require_driver() -> None:
    """Raise GranularityError if Snakemake planned this process with a different version of this package."""
    root, _, digest = os.environ.get(DRIVER, "").rpartition(" ")
    if root and root != str(ROOT) and digest != package_digest():
        raise GranularityError(
            f"`granularity` on the PATH runs the code in {ROOT}, but snakemake planned with the code in {root}; "
            "activate the environment of that checkout (with --sdm conda: delete .snakemake/conda; with --sdm "
            "apptainer: rebuild the image)"
        )


def require_unedited(*names: str) -> None:
    """Raise GranularityError if the code of :func:`code_digest` was edited since: its result would have the old key."""
    before = code_digest(*names)
    code_digest.cache_clear()
    _read.cache_clear()
    if code_digest(*names) != before:
        files = ", ".join(sorted(name for name in names if name.endswith(".py"))) or f"the code in {ROOT}"
        raise GranularityError(f"{files}: edited since this job started; run the command again")


def import_closure(*names: str) -> set[str]:
    """Return the scientific modules (and users' files) that names import, directly or not, also inside functions."""
    modules, todo = set(), list(names)
    while todo:
        name = todo.pop()
        if name in modules:
            continue
        modules.add(name)
        todo += [module for module in _read(_path(name)).imports if is_science(module)]
        if name.endswith(".py"):
            todo += _helpers(_read(Path(name)).imports)
    return modules


def _helpers(imports: list[str]) -> Iterator[str]:
    """Yield the local files that a user's file imports: modules and packages that are not installed."""
    for name in sorted({other.split(".")[0] for other in imports} - {PACKAGE, *sys.stdlib_module_names}):
        spec = None if name in _distributions() else importlib.util.find_spec(name)
        if spec and spec.submodule_search_locations:
            yield from (str(file) for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py"))
        elif spec and spec.origin and spec.origin.endswith(".py"):
            yield spec.origin


def is_science(name: str) -> bool:
    """Return whether a dotted name is a module of this package that determines the bytes of results."""
    room, *rest = name.split(".")[1:] or [""]
    if room not in SCIENCE or not rest or rest[-1] in OPTIONS:
        return False
    # A package's `__init__` only holds records or tables, except below a stage, as in the worlds of the theory.
    return (path := _path(name)).is_file() and (path.name != "__init__.py" or len(rest) > 1)


def _path(name: str) -> Path:
    if name.endswith(".py"):
        return Path(name)
    base = ROOT.joinpath(*name.split(".")[1:])
    package = base / "__init__.py"
    return package if package.is_file() else base.with_suffix(".py")  # a folder may be the remains of a deleted package


class _Source(NamedTuple):
    imports: list[str]  # modules, or names in them
    code: str  # in canonical form


@functools.cache
def _read(path: Path) -> _Source:
    """Read a Python file. The user's cache keeps parsed files, because parsing all takes more than a second."""
    content = path.read_bytes()
    known_by = hashlib.sha256(b"\0".join([sys.version.encode(), THIS_FILE, content])).hexdigest()
    if (found := hashing.recall("parsed", f"{known_by}.json")) is not None:
        return _Source(**found)
    source = _parsed(content)
    hashing.note(source._asdict(), "parsed", f"{known_by}.json")
    return source


def _parsed(content: bytes) -> _Source:
    tree = ast.parse(content)
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return _Source(names, ast.unparse(tree))
