"""The artifact contract: stages meet only through files, and nothing is read unverified (docs/artifacts.md)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import regular, strict_json
from granularity.base.errors import GranularityError
from granularity.store import hashing, place
from granularity.store.code import RESULT_VERSION
from granularity.store.place import MANIFEST

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch


LARGEST = 2**28  # bytes of a manifest
RUN, MEASURED = PARTS = place.PARTS
CHECKED_BY = "checked_by"  # in what a manifest says of a file: the file with the checksums that its readers compare
# What decides the bytes of a result, and so its key: see :meth:`granularity.store.task.Task.states`.
ORIGIN = ("kind", "schema_version", "options", "made_from", "seed", "outside", "machine", "code", "packages")


# ---------------------------------------------------------------- manifests


# What every manifest holds: types, patterns of text, and forms of a mapping's parts (at None: of each) or a list's.
FORM: dict[Any, Any] = dict.fromkeys(("options", "machine", "packages", "params", "summary", "hardware"), dict)
FORM |= {"kind": place.KIND, "key": place.KEY, "digest": place.DIGEST, "name": str, "seed": int | None}
FORM |= {"made_from": {None: list}, "outside": {None: str}, "facts": [str], "command": [str]}
FORM |= {"code": {"modules": [str], "digest": str}, "files": {None: {"sha256": place.DIGEST, "bytes": int}}}
FORM |= {"inputs": {None: {"path": str, "name": str, "kind": place.KIND, "digest": place.DIGEST}}}
FORM |= {"cost": {"started": str, **dict.fromkeys(("wall_seconds", "cpu_seconds", "peak_memory_mb"), int | float)}}


def _unlike(value: Any, form: Any, *where: str) -> Iterator[str]:
    """The places where a value has not a form, see :data:`FORM`."""
    if isinstance(form, dict) and isinstance(value, dict):
        for name in value if None in form else form:
            if name in value:
                yield from _unlike(value[name], form.get(name, form.get(None)), *where, name)
            else:
                yield ".".join([*where, name])
    elif isinstance(form, list) and isinstance(value, list):
        yield from (wrong for one in value for wrong in _unlike(one, *form, *where))
    elif isinstance(form, str) and isinstance(value, str) and re.fullmatch(form, value):
        return
    elif isinstance(form, dict | list | str) or not isinstance(value, form):
        yield ".".join(where)


class OtherVersionError(GranularityError):
    """A sound manifest that another version of this program wrote."""


_sound: set[bytes] = set()  # SHA-256 of texts that were found sound: the same manifests are read thousands of times


def parse(text: bytes, file: Path) -> dict[str, Any]:
    """What the text of a manifest says, without its seal; a GranularityError: corrupt, or an OtherVersionError."""
    corrupt = f"{file}: corrupt (%s); delete the stamp that names it, and snakemake makes it again"
    try:
        found = strict_json.parse_json(text, str(file))
    except GranularityError:
        found = None
    if not isinstance(found, dict) or "seal" not in found:
        raise GranularityError(corrupt % "not a manifest")
    del found["seal"]
    known_by = hashlib.sha256(text).digest()
    if known_by not in _sound and as_text(found).encode() != text:
        raise GranularityError(corrupt % "its seal does not match what it says")
    if found.get("schema_version") != RESULT_VERSION:
        raise OtherVersionError(
            f"{file}: schema_version {found.get('schema_version')}, but this version reads {RESULT_VERSION}; move the "
            "folder away, and snakemake makes it again"
        )
    if known_by not in _sound and (wrong := next(_unlike(found, FORM), None)) is not None:
        raise GranularityError(corrupt % f"it lacks '{wrong}', or that is not what it should be")
    if any(not place.is_plain(name) or name == MANIFEST for name in found["files"]):
        raise GranularityError(corrupt % "it lists a file beyond the artifact")
    _sound.add(known_by)
    return found


def as_text(manifest: dict[str, Any]) -> str:
    """The one text of a manifest, with its seal: a SHA-256, which shows accidents and is no signature."""
    return json.dumps({**manifest, "seal": _sha256(manifest)}, indent=2, ensure_ascii=False) + "\n"


def _sha256(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)


def content_digest(manifest: dict[str, Any]) -> str:
    """The digest of an artifact, from its manifest: what it holds."""
    files = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    facts = {name: manifest["params"].get(name) for name in manifest["facts"]}
    kind, schema = manifest["kind"], manifest["schema_version"]
    return _sha256({"kind": kind, "schema": schema, "files": files, "facts": facts})


def key_of(manifest: dict[str, Any]) -> str:
    """The key of a result, from its manifest or from the first lines of one that is yet to be made: what makes it."""
    return _sha256({name: manifest[name] for name in ORIGIN} | {"code": manifest["code"]["digest"]})[:32]


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Artifact:
    """A verified artifact: the name that it was asked for by, for messages; its manifest; the folder it lies in."""

    path: Path
    manifest: dict[str, Any]
    folder: Path  # for reading: the name may lead elsewhere a moment later

    @classmethod
    def open(cls, path: str | Path, kind: str | None = None) -> Artifact:
        """Verify an artifact (by folder, name, manifest or stamp), but for files each record of which its readers
        verify, and open it. Raises a GranularityError: missing, of another kind, corrupt or truncated.
        """
        artifact = cls.peek(path)
        if kind is not None and artifact.kind != kind:
            raise GranularityError(f"{artifact.path}: is a '{artifact.kind}' artifact where '{kind}' is needed")
        for problem in artifact.corrupt(records=False):
            raise GranularityError(f"{problem}; delete {place.stamp_of(artifact.path)}, and snakemake makes it again")
        return artifact

    @classmethod
    def peek(cls, path: str | Path) -> Artifact:
        """Read the manifest alone, without verifying the data; for listings."""
        name = place.folder_of(path)
        folder = Path(os.path.realpath(name))
        try:
            text = regular.read_regular(folder / MANIFEST, LARGEST)
        except regular.MissingError:
            raise regular.MissingError(f"{name}: there is no artifact here (no {MANIFEST})") from None
        except GranularityError as error:  # no regular file
            raise GranularityError(str(error).replace(str(folder), str(name))) from None
        return cls(name, parse(text, name / MANIFEST), folder)

    @property
    def kind(self) -> str:
        return self.manifest["kind"]

    @property
    def digest(self) -> str:
        """SHA-256 over the kind, the contents of all data files and the facts."""
        return self.manifest["digest"]

    @property
    def place(self) -> Path:
        """Where its name lies, absolute."""
        return Path(os.path.abspath(self.path))

    @property
    def facts(self) -> dict[str, Any]:
        """The parameters that what is made from it may read: they count in the digest, as files do."""
        return {name: self.params[name] for name in self.manifest["facts"]}

    @property
    def params(self) -> dict[str, Any]:
        """All resolved parameters, for people."""
        return self.manifest["params"]

    @property
    def summary(self) -> dict[str, Any]:
        return self.manifest["summary"]

    def content(self, *names: str) -> str:
        """SHA-256 over its files and facts, but for some facts that are names."""
        files = {name: entry["sha256"] for name, entry in self.manifest["files"].items()}
        return _sha256([self.kind, files, {name: value for name, value in self.facts.items() if name not in names}])

    @property
    def size(self) -> int:
        """Bytes of all data files."""
        return sum(entry["bytes"] for entry in self.manifest["files"].values())

    def corrupt(self, hashed: bool = True, anew: bool = False, records: bool = True) -> Iterator[str]:
        """All that is wrong, one line each.

        Args:
            hashed: whether contents count, or only what sizes show, which is quick.
            anew: hash even what this machine has hashed before and finds unchanged.
            records: hash files, too, whose records have checksums of their own.
        """
        files = self.manifest["files"]
        *_, store, kind, key = ("", *self.folder.parts)
        if store == place.STORE and kind[0] != "." and (kind, key) != (self.kind, self.manifest["key"]):
            yield f"{self.path / MANIFEST}: is of another result than its place in the store says"
        wrong = {name: found for name, entry in files.items() if (found := _damage(self.folder / name, entry["bytes"]))}
        yield from (f"{self.path / name}: {found}" for name, found in wrong.items())
        if hashed:
            counted = [name for name in files if name not in wrong and (records or CHECKED_BY not in files[name])]
            try:
                for name, digest in hashing.hashes(self.folder, counted, anew).items():
                    if digest != files[name]["sha256"]:
                        yield f"{self.path / name}: corrupt (its SHA-256 is not the manifest's)"
            except GranularityError as error:
                yield str(error)

    def unlike(self, stamp: Path) -> str | None:
        """What is wrong if a stamp is not that of this artifact."""
        try:
            text = regular.read_regular(stamp, LARGEST)
        except GranularityError as error:
            return str(error)
        if text == place.stamp_text(self.kind, self.digest).encode():
            return None
        return f"{stamp}: is the stamp of another result than {self.path} leads to; delete it and run snakemake"

    def lineage(self) -> dict[str, Artifact]:
        """The generations that it was made from, by role; those that are gone are left out."""
        found = {}
        for role, entry in self.manifest["inputs"].items():
            with contextlib.suppress(GranularityError):
                source = Artifact.peek(self.folder / entry["path"])
                if source.digest == entry["digest"]:
                    found[role] = source
        return found

    def file(self, name: str) -> Path:
        """Where one of its files lies; a GranularityError where its manifest has none of that name."""
        if name not in self.manifest["files"]:
            raise GranularityError(f"{self.path / name}: is no file of it; it has {', '.join(self.manifest['files'])}")
        return self.folder / name

    def table(self, name: str, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """A Parquet table, or some of its columns; a GranularityError where it is none, or has none of such names."""
        import pyarrow.parquet as pq

        with readable(self.path / name, "a Parquet table"):
            schema = pq.read_schema(self.file(name))
            missing = [column for column in columns or [] if column not in schema.names]
            if missing:
                raise GranularityError(f"{self.path / name}: has no column {missing}; it has {schema.names}")
            table = pq.ParquetFile(self.folder / name).read(columns=list(columns) if columns is not None else None)
        return table.to_pandas()

    def array(self, name: str, shape: tuple[int | None, ...] | None = None, dtype: type | None = None) -> np.ndarray:
        """An array, memory-mapped copy-on-write; a GranularityError where it has not that shape (None: any length)."""
        import numpy as np

        with readable(self.path / name, "an array"):
            values = np.load(self.file(name), mmap_mode="c", allow_pickle=False)
        if shape is not None:
            wanted = tuple(n if want is None else want for n, want in zip(values.shape, shape, strict=False))
            if (values.dtype, values.shape, values.ndim) != (dtype, wanted, len(shape)):
                found, wanted = (f"{values.dtype} of {values.shape}", f"{np.dtype(dtype)} of {shape}")
                raise GranularityError(f"{self.path / name}: is {found}, and must be {wanted}")
        return values

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """Weights from a safetensors file."""
        from safetensors.torch import load_file

        with readable(self.path / name, "a safetensors file"):
            return load_file(self.file(name))

    def json(self, name: str, *keys: str) -> Any:
        """A JSON file; with keys, a mapping that has them."""
        value = strict_json.parse_json(regular.read_regular(self.file(name), LARGEST), str(self.path / name))
        if keys and not (isinstance(value, dict) and value.keys() >= {*keys}):
            raise GranularityError(f"{self.path / name}: must be a mapping with the keys {', '.join(keys)}")
        return value


def _damage(file: Path, size: int) -> str | None:
    """What is wrong with a file that should have so many bytes, without a look into it."""
    try:
        there = file.lstat()
        if os.path.realpath(file.parent) != str(file.parent):
            return "a link leads there"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    if not stat.S_ISREG(there.st_mode):
        return "no regular file"
    return None if there.st_size == size else f"corrupt ({there.st_size} bytes, the manifest says {size})"


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


# ---------------------------------------------------------------- costs


def by_stage(artifacts: Iterable[Artifact]) -> list[dict[str, Any]]:
    """The costs of some artifacts, a row per kind, in the order in which they come.

    `jobs`; `wall_seconds` and `cpu_seconds`, summed; `peak_memory_mb`, the largest. Where any job used a GPU, also
    `gpu_seconds`, the wall clock of the jobs that did, and `gpu_peak_memory_mb`, the largest or None.
    """
    stages: dict[str, list[tuple[dict[str, Any], bool]]] = {}
    for one in artifacts:
        # FAISS is no torch, so the hardware does not name its GPU; a clustering's parameters do.
        on_gpu = "gpu" in one.manifest["hardware"] or bool(one.params.get("gpu"))
        stages.setdefault(one.kind, []).append((one.manifest["cost"], on_gpu))
    any_gpu = any(on_gpu for costs in stages.values() for _, on_gpu in costs)
    rows = []
    for stage, costs in stages.items():
        row: dict[str, Any] = {"stage": stage, "jobs": len(costs)}
        row |= {key: sum(cost[key] for cost, _ in costs) for key in ("wall_seconds", "cpu_seconds")}
        row["peak_memory_mb"] = max(cost["peak_memory_mb"] for cost, _ in costs)
        if any_gpu:
            there = [cost for cost, on_gpu in costs if on_gpu]
            peaks = [cost["gpu_peak_memory_mb"] for cost in there if "gpu_peak_memory_mb" in cost]
            row["gpu_seconds"] = sum(cost["wall_seconds"] for cost in there)
            row["gpu_peak_memory_mb"] = max(peaks, default=None)
        rows.append(row)
    return rows
