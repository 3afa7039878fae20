"""Artifacts of any content, written as stages write theirs."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from granularity.store import place, writer
from granularity.store.artifact import Artifact, key_of
from granularity.store.code import RESULT_VERSION, code_digest, packages
from granularity.store.writer import Writer

THIS = ("granularity.base.seeds",)


def origin(
    kind: str,
    params: Mapping[str, Any],
    code: Sequence[str] = THIS,
    inputs: Mapping[str, Artifact] | None = None,
    **over,
) -> dict[str, Any]:
    """What decides the bytes of an artifact whose options are its parameters."""
    return {
        "kind": kind,
        "schema_version": RESULT_VERSION,
        "options": dict(params),
        "made_from": {role: [source.digest] for role, source in (inputs or {}).items()},
        "seed": None,
        "outside": {},
        "machine": {},
        "code": {"modules": list(code), "digest": code_digest(*code)},
        "packages": packages(*code),
        **over,
    }


def key(kind: str, params: Mapping[str, Any]) -> str:
    """The key of what `create(output, kind, params=params)` writes."""
    return key_of(origin(kind, params))


def create(
    output: str | Path,
    kind: str = "thing",
    code: Sequence[str] = THIS,
    inputs: Mapping[str, Artifact] | None = None,
    params: Mapping[str, Any] | None = None,
    resumable: bool = False,
    files: Sequence[str] = ("*",),
    facts: Sequence[str] | None = None,
    **over,
) -> AbstractContextManager[Writer]:
    """Write an artifact; unless told otherwise, all its parameters are facts. `over`: parts of its origin."""
    params, inputs = dict(params or {}), dict(inputs or {})
    made_from = origin(kind, params, code, inputs, **over)
    return writer.create(
        Path(output), made_from, inputs, params, tuple(params) if facts is None else facts, resumable, files
    )


def unlike_any() -> dict[str, Any]:
    """A part of an origin that none else has: for artifacts whose contents are of the test's own making."""
    return {"outside": {"made by": secrets.token_hex(32)}}


def names(folder: Path) -> list[str]:
    """Names of the results in a folder, each with its stamp; nothing is left of what made them."""
    store = folder / place.STORE
    places = (place.WORK, place.NEW, place.LOCKS, place.ASIDE)
    assert [path for place in places for path in (store / place).glob("*")] == []
    found = {path.name for path in folder.iterdir() if path != store and path.name != "elsewhere"}  # another store
    results = {name for name in found if (folder / name).is_symlink()}
    assert found - results == {f"{name}{place.STAMP}" for name in results}
    return sorted(results)


def work(output: Path) -> Path:
    """The one folder of unfinished work for an output."""
    store = place.store_of(output)
    name = place.name_in(store, output)
    (found,) = [folder for folder, of in place.works_of(store).items() if of == name]
    return found
