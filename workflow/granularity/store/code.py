"""The digest of the code that makes a result.

Snakemake does not see an edit to an imported module. Each rule therefore carries, as a parameter, the digest of the
import closure of its stage's module within this package: editing `cluster.py` reruns clustering and what follows.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from pathlib import Path

PACKAGE = "granularity"
ROOT = Path(__file__).parents[1]
# Options reach a stage as parameters, which Snakemake and every manifest already compare; digesting the module that
# holds all of them would rerun everything for a new option of one stage.
NOT_DIGESTED = {f"{PACKAGE}.config.options", f"{PACKAGE}.config.files"}


@functools.cache
def code_digest(modules: str) -> str:
    """Digest of some modules and of everything in this package that they import, directly or not.

    Comments, docstrings and layout do not count: the digest is over the parsed code. Files in a package that are not
    Python (templates, tables) count as they are.

    Args:
        modules: dotted names, such as ``granularity.stages.cluster``, separated by spaces.

    Returns:
        The first 16 hexadecimal digits of a SHA-256.
    """
    digest = hashlib.sha256()
    for name in sorted(import_closure(modules)):
        path = _path(name)
        digest.update(f"{name}\n{_read(path)[1]}\n".encode())
        if path.name == "__init__.py":
            for data in sorted(path.parent.iterdir()):
                if data.is_file() and data.suffix != ".py":
                    digest.update(data.name.encode() + data.read_bytes())
    return digest.hexdigest()[:16]


def import_closure(modules: str) -> set[str]:
    """Names of the package's modules that importing these can bring in, imports inside functions included."""
    found, todo = set(), modules.split()
    while todo:
        name = todo.pop()
        if name in found or name in NOT_DIGESTED:
            continue
        found.add(name)
        todo += [other for other in _read(_path(name))[0] if _path(other).is_file()]
    return found


def _path(name: str) -> Path:
    base = ROOT.joinpath(*name.split(".")[1:])
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@functools.cache
def _read(path: Path) -> tuple[list[str], str]:
    """What a file imports from this package, modules or names in them, and its code in canonical form.

    Cached, because most files are in the closure of most stages, and parsing is what a digest costs.
    """
    tree = ast.parse(path.read_bytes())
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
    return [name for name in names if name.split(".")[0] == PACKAGE], ast.unparse(tree)
