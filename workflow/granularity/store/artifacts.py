"""The artifact contract: stages meet only through files, and nothing is read unverified.

An artifact is a folder of data files with one `manifest.json` that says what they are, how they were made and what
they hash to. Tables are Parquet, arrays .npy, weights safetensors, everything else JSON; nothing is pickled.

A reader hashes every file, once per machine: a flipped byte or a truncated file is an error that names the file.
Where artifacts lie is :mod:`granularity.store.generations`; how they are written, :mod:`granularity.store.writer`.

All that is against accidents. Seal, key and digest are hashes without a secret: who rewrites an artifact and makes
them anew has written another artifact.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import regular, strict_json
from granularity.base.errors import GranularityError
from granularity.store import generations, hashing, manifests
from granularity.store.code import RESULT_VERSION
from granularity.store.generations import MANIFEST
from granularity.store.manifests import canonical_json

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import torch


LARGEST = 2**28  # bytes of a manifest
RUN, MEASURED = PARTS = ("run", "measured")  # kinds of single runs, which the results of jobs hold
CHECKED_BY = "checked_by"  # in what a manifest says of a file: the file with the checksums that its readers compare


@dataclass(frozen=True)
class Artifact:
    """A verified artifact.

    Attributes:
        path: the name that it was asked for by, for people and messages.
        manifest: what `manifest.json` says.
        folder: the folder that the name led to, for reading: the name may lead elsewhere a moment later.
    """

    path: Path
    manifest: dict[str, Any]
    folder: Path

    @classmethod
    def open(cls, path: str | Path, kind: str | None = None) -> Artifact:
        """Verify an artifact and open it.

        Files of records with checksums of their own, such as shards of images, are not hashed: whoever reads a record
        compares it with its checksum, which lies in a file that is.

        Args:
            path: its folder, its name, or the manifest or the stamp of it.
            kind: the kind it must have.

        Raises:
            GranularityError: missing, of another kind, corrupt or truncated.
        """
        artifact = cls.peek(path)
        if kind is not None and artifact.kind != kind:
            raise GranularityError(f"{artifact.path}: is a '{artifact.kind}' artifact where '{kind}' is needed")
        for problem in artifact.corrupt(records=False):
            raise GranularityError(
                f"{problem}; delete {generations.stamp_of(artifact.path)}, and snakemake makes it again"
            )
        return artifact

    @classmethod
    def peek(cls, path: str | Path) -> Artifact:
        """Read the manifest alone, without verifying the data; for listings."""
        name = generations.folder_of(path)
        folder = Path(os.path.realpath(name))
        file = name / MANIFEST
        try:
            text = regular.read_regular(folder / MANIFEST, LARGEST).decode()
        except regular.MissingError:
            raise GranularityError(f"{name}: there is no artifact here (no {MANIFEST})") from None
        except GranularityError as error:  # no regular file
            raise GranularityError(str(error).replace(str(folder), str(name))) from None
        except UnicodeDecodeError:
            raise GranularityError(f"{file}: corrupt (not a manifest); make the artifact again") from None
        return cls(name, manifests.parse(text, file, RESULT_VERSION), folder)

    @property
    def kind(self) -> str:
        return self.manifest["kind"]

    @property
    def digest(self) -> str:
        """SHA-256 over the kind, the contents of all data files and the facts; not over times, versions or hardware."""
        return self.manifest["digest"]

    @property
    def place(self) -> Path:
        """Where its name lies, absolute."""
        return Path(os.path.abspath(self.path))

    @property
    def facts(self) -> dict[str, Any]:
        """Those parameters that what is made from it may read: they count in the digest, as files do."""
        return {name: self.params[name] for name in self.manifest["facts"]}

    @property
    def params(self) -> dict[str, Any]:
        """All resolved parameters, for people; a stage reads an input's :attr:`facts`."""
        return self.manifest["params"]

    @property
    def summary(self) -> dict[str, Any]:
        return self.manifest["summary"]

    def content(self, *names: str) -> str:
        """SHA-256 over its files and facts, but for some facts that are names."""
        files = {name: entry["sha256"] for name, entry in self.manifest["files"].items()}
        facts = {name: value for name, value in self.facts.items() if name not in names}
        return hashlib.sha256(canonical_json([self.kind, files, facts]).encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all data files."""
        return sum(entry["bytes"] for entry in self.manifest["files"].values())

    def corrupt(self, hashed: bool = True, anew: bool = False, records: bool = True) -> Iterator[str]:
        """All that is wrong, one line each: corrupt or missing files, files nobody listed.

        Args:
            hashed: whether contents count; if not, only what sizes show, which is quick.
            anew: hash even what this machine has hashed before and finds unchanged.
            records: hash files, too, whose records have checksums of their own.
        """
        files = self.manifest["files"]
        if content_digest(self.manifest) != self.digest:
            yield f"{self.path / MANIFEST}: corrupt (its digest does not match what it lists)"
        if key_of(self.manifest) != self.manifest["key"]:
            yield f"{self.path / MANIFEST}: corrupt (its key does not match what it was made from)"
        elif not generations.is_place_of(self.folder, self.kind, self.manifest["key"]):
            yield f"{self.path / MANIFEST}: is of another result than its place in the store says"
        if (self.folder / MANIFEST).is_symlink():
            yield f"{self.path / MANIFEST}: a link where a file should be"
        sound = []
        for name, entry in files.items():
            file = self.path / name
            try:
                there = (self.folder / name).lstat()
                if stat.S_ISLNK(there.st_mode):
                    yield f"{file}: a link where a file should be"
                elif not stat.S_ISREG(there.st_mode):
                    yield f"{file}: no regular file"
                elif there.st_size != entry["bytes"]:
                    yield f"{file}: corrupt ({there.st_size} bytes, the manifest says {entry['bytes']})"
                elif records or CHECKED_BY not in entry:
                    sound.append(name)
            except (FileNotFoundError, NotADirectoryError):
                yield f"{file}: missing"
            except OSError as error:
                yield f"{file}: cannot be read ({error.strerror or error})"
        if hashed:
            yield from self._altered(sound, anew)
        for file in sorted(self.folder.rglob("*")):
            name = file.relative_to(self.folder).as_posix()
            is_folder = file.is_dir() and not file.is_symlink()
            if not is_folder and name not in files and name != MANIFEST and not file.name.startswith("."):
                yield f"{self.path / name}: not listed in the manifest"

    def unlike(self, stamp: Path) -> str | None:
        """What is wrong if a stamp is not that of this artifact."""
        try:
            text = regular.read_regular(stamp, LARGEST)
        except GranularityError as error:
            return str(error)
        if text == generations.stamp_text(self.kind, self.digest).encode():
            return None
        return f"{stamp}: is the stamp of another result than {self.path} leads to; delete it and run snakemake"

    def _altered(self, names: list[str], anew: bool) -> Iterator[str]:
        try:
            found = hashing.hashes(self.folder, names, anew)
        except GranularityError as error:
            yield str(error)
            return
        for name, digest in found.items():
            if digest != self.manifest["files"][name]["sha256"]:
                yield f"{self.path / name}: corrupt (its SHA-256 is not the manifest's)"

    def lineage(self) -> dict[str, Artifact]:
        """The generations that it was made from, by role; those that are gone are left out."""
        found = {}
        for role, entry in self.manifest["inputs"].items():
            with contextlib.suppress(GranularityError):
                source = Artifact.peek(self.folder / entry["path"])
                if source.digest == entry["digest"]:
                    found[role] = source
        return found

    def table(self, name: str, columns: list[str] | dict[str, str] | None = None) -> pd.DataFrame:
        """A Parquet table, or some of its columns.

        Args:
            columns: their names; or what each of them must hold, a key of `KINDS`, with `?` where it may be null.

        Raises:
            GranularityError: no table, or one without such columns.
        """
        import pyarrow.parquet as pq

        with readable(self.path / name, "a Parquet table"):
            schema = pq.read_schema(self.folder / name)
            missing = [column for column in columns or [] if column not in schema.names]
            if missing:
                raise GranularityError(f"{self.path / name}: has no column {missing}; it has {schema.names}")
            table = pq.ParquetFile(self.folder / name).read(columns=list(columns) if columns is not None else None)
        for column, kind in columns.items() if isinstance(columns, dict) else ():
            if not _is_kind(table[column], kind):
                wanted = KINDS[kind.rstrip("?")] + ("" if kind.endswith("?") else ", none of them null")
                found = f"{table[column].type}, {table[column].null_count} of them null"
                raise GranularityError(f"{self.path / name}: column '{column}' must be {wanted}, and is {found}")
        return table.to_pandas()

    def array(self, name: str, shape: tuple[int | None, ...] | None = None, dtype: type | None = None) -> np.ndarray:
        """An array, memory-mapped copy-on-write.

        Args:
            shape: what it must have, None for any length but 0.
            dtype: what it must have.

        Raises:
            GranularityError: no array, or another one.
        """
        import numpy as np

        with readable(self.path / name, "an array"):
            values = np.load(self.folder / name, mmap_mode="c", allow_pickle=False)
        if (dtype is not None and values.dtype != dtype) or (shape is not None and not _fits(values.shape, shape)):
            wanted = f"{np.dtype(dtype) if dtype else 'numbers'} of ({', '.join(str(n or 'any') for n in shape or ())})"
            raise GranularityError(f"{self.path / name}: is {values.dtype} of {values.shape}, and must be {wanted}")
        return values

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """Weights from a safetensors file."""
        from safetensors.torch import load_file

        with readable(self.path / name, "a safetensors file"):
            return load_file(self.folder / name)

    def json(self, name: str, *keys: str) -> Any:
        """A JSON file; with keys, a mapping that has them."""
        value = strict_json.parse_json(regular.read_regular(self.folder / name, LARGEST), str(self.path / name))
        if keys and not (isinstance(value, dict) and value.keys() >= {*keys}):
            raise GranularityError(f"{self.path / name}: must be a mapping with the keys {', '.join(keys)}")
        return value


KINDS = {"text": "text", "whole": "whole numbers", "number": "numbers"}


def _is_kind(column: pa.ChunkedArray, kind: str) -> bool:
    import pyarrow as pa
    from pyarrow import types

    if column.null_count and not kind.endswith("?"):
        return False
    inner = column.type.value_type if types.is_dictionary(column.type) else column.type
    is_whole = types.is_integer(inner)
    tests = {
        "text": types.is_string(inner) or types.is_large_string(inner),
        "whole": is_whole,
        "number": is_whole or types.is_floating(inner),
    }
    return tests[kind.rstrip("?")] or (inner == pa.null() and kind.endswith("?"))


def _fits(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(found) == len(wanted) and all(n > 0 if w is None else n == w for n, w in zip(found, wanted, strict=True))


@contextlib.contextmanager
def readable(file: Path, what: str) -> Iterator[None]:
    """Turn whatever a library says of a file that it cannot read into one line."""
    try:
        yield
    except GranularityError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
        if "allow_pickle" in reason or "weights_only" in reason:  # libraries advise to run what a stranger wrote
            reason = "it holds Python objects, which could run anything"
        raise GranularityError(f"{file}: cannot be read as {what} ({reason})") from None


def content_digest(manifest: dict[str, Any]) -> str:
    """The digest of an artifact, from its manifest."""
    content = {
        "kind": manifest["kind"],
        "schema": manifest["schema_version"],
        "files": {name: entry["sha256"] for name, entry in manifest["files"].items()},
        "facts": {name: manifest["params"].get(name) for name in manifest["facts"]},
    }
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


# What decides the bytes of a result, and so its key: see :attr:`granularity.store.task.Task.origin`.
ORIGIN = ("kind", "schema_version", "options", "made_from", "seed", "outside", "machine", "packages")


def key_of(manifest: dict[str, Any]) -> str:
    """The key of a result, from its manifest or from the first lines of one that is yet to be made."""
    origin = {name: manifest[name] for name in ORIGIN} | {"code": manifest["code"]["digest"]}
    return hashlib.sha256(canonical_json(origin).encode()).hexdigest()[:32]


# ---------------------------------------------------------------- a whole folder of them


def find(root: str | Path, hidden: bool = False) -> list[Path]:
    """Names of all artifacts at or below a folder, sorted; two of them may lead to one artifact.

    Args:
        hidden: whether folders and names that begin with a dot count, too; stores never do.
    """
    return sorted(folder for folder, is_artifact, _ in _walk(Path(root), hidden) if is_artifact)


def find_lost(root: str | Path) -> list[Path]:
    """Names of results at or below a folder, sorted, that lead to no artifact."""
    names = set()
    for folder, is_artifact, files in _walk(Path(root)):
        for path in () if is_artifact else (folder / file for file in files):
            if path.name.endswith(generations.STAMP) or (generations.is_name(path) and not generations.is_torn(path)):
                names.add(generations.folder_of(path))
    return sorted(name for name in names if not os.path.lexists(name / MANIFEST))


def find_torn(root: str | Path) -> list[Path]:
    """What killed processes left beside the names of results at or below a folder, sorted."""
    torn = (folder / file for folder, _, files in _walk(Path(root)) for file in files)
    return sorted(path for path in torn if generations.is_torn(path))


def _walk(root: Path, hidden: bool = False) -> Iterator[tuple[Path, bool, list[str]]]:
    """Folders at or below one, links followed: each with whether it is an artifact, its files, folders left out."""
    if not root.exists():
        raise GranularityError(f"{root}: there is no such folder")

    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    seen: set[tuple[int, int]] = set()
    for folder, folders, files in os.walk(root, onerror=unreadable, followlinks=True):
        there = os.stat(folder)
        out = [name for name in folders if name.startswith(".") and not (hidden and _may_name(Path(folder, name)))]
        folders[:] = [name for name in folders if name not in out]
        is_artifact = MANIFEST in {*files, *folders}
        if is_artifact or (there.st_dev, there.st_ino) in seen:  # a link to a folder above, or to another one
            folders[:] = []
        seen.add((there.st_dev, there.st_ino))
        yield Path(folder), is_artifact, [*files, *out]


def _may_name(folder: Path) -> bool:
    """Whether a hidden folder may be a name or hold some: no store, nothing in one, and no name that was never made."""
    return generations.STORE not in (folder.name, folder.parent.name) and not generations.is_torn(folder)
