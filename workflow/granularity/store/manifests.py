"""The text of a manifest: its form, and the seal that shows any change to it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from granularity.base.errors import GranularityError
from granularity.base.strict_json import parse_json

# SHA-256 of texts that were found sound. Whoever reads many artifacts meets the same manifests thousands of times, as
# inputs of one after the other.
_sound: set[bytes] = set()


class OtherVersionError(GranularityError):
    """A sound manifest that another version of this program wrote."""


def _below(name: str) -> str:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or "/".join(parts) != name:
        raise ValueError("is no path below the artifact")
    return name


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, AfterValidator(_below)]


class File(BaseModel):
    sha256: Sha256
    bytes: Annotated[int, Field(ge=0)]


class Input(BaseModel):
    name: str
    path: Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=4096)]
    kind: str
    digest: Sha256


class Code(BaseModel):
    modules: list[Annotated[str, Field(pattern=r"^[^\x00]+$", max_length=4096)]]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class Cost(BaseModel):
    started: str
    wall_seconds: float
    cpu_seconds: float
    peak_memory_mb: float


class Manifest(BaseModel):
    """The keys that every manifest holds; more are allowed."""

    kind: str
    schema_version: int
    digest: Sha256
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    name: str
    options: dict[str, Any]
    made_from: dict[str, list[Any]]
    seed: int | None
    outside: dict[str, str]
    machine: dict[str, Any]
    code: Code
    packages: dict[str, str]
    files: dict[Name, File]
    inputs: dict[str, Input]
    params: dict[str, Any]
    facts: list[str]
    summary: dict[str, Any]
    command: list[str]
    all_packages: dict[str, Any]
    hardware: dict[str, Any]
    cost: Cost


def parse(text: str, file: Path, schema_version: int) -> dict[str, Any]:
    """Check the text of a manifest, and return what it says, without its seal.

    Args:
        schema_version: the one that this program reads.

    Raises:
        GranularityError: it is not byte for byte as :func:`as_text` writes it, or not of the right form.
        OtherVersionError: sound, but of another version.
    """
    try:
        manifest = _plain(text, file)
        if not isinstance(manifest, dict) or "seal" not in manifest:
            raise ValueError
        digest = hashlib.sha256(text.encode()).digest()
        if digest in _sound:
            del manifest["seal"]
        elif as_text(manifest) != text or manifest.pop("seal") != seal(manifest):
            raise GranularityError(f"{file}: corrupt (its seal does not match what it says); make the artifact again")
        version = manifest.get("schema_version")
        if version != schema_version:
            raise OtherVersionError(
                f"{file}: schema_version {version}, but this version reads {schema_version}; move the "
                "folder away, and snakemake makes it again"
            )
        if digest not in _sound:
            Manifest.model_validate(manifest, strict=True)
            _sound.add(digest)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise GranularityError(f"{file}: corrupt (not a manifest: {where}); make the artifact again") from None
    except ValueError:
        raise GranularityError(f"{file}: corrupt (not a manifest); make the artifact again") from None
    return manifest


def _plain(text: str, file: Path) -> Any:
    try:
        return parse_json(text, str(file))
    except GranularityError:
        raise ValueError from None


def as_text(manifest: dict[str, Any]) -> str:
    """The one text of a manifest, seal included."""
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


def seal(manifest: dict[str, Any]) -> str:
    """SHA-256 over a manifest without its seal: it shows accidents, and is no signature."""
    return hashlib.sha256(canonical_json(manifest).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
