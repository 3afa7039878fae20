"""Read and verify artifacts, the folders of files through which stages exchange results (docs/artifacts.md)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
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


LARGEST = 2**28  # most bytes of a manifest
RUN, MEASURED = PARTS = place.PARTS
CHECKED_BY = "checked_by"  # key of a file's entry in a manifest: names the file of checksums that readers compare
# Entries that determine the bytes of a result, and so its key: see :meth:`granularity.store.task.Task.states`.
ORIGIN = ("kind", "schema_version", "options", "made_from", "seed", "outside", "machine", "code", "packages")


# ---------------------------------------------------------------- manifests


# Form of a manifest: types, regular expressions for text, forms of the items of a list or a mapping (None: any key).
FORM: dict[Any, Any] = dict.fromkeys(("options", "machine", "packages", "params", "summary", "hardware"), dict)
FORM |= {"kind": place.KIND, "key": place.KEY, "digest": place.DIGEST, "name": str, "seed": int | None}
FORM |= {"made_from": {None: list}, "outside": {None: str}, "facts": [str], "command": [str]}
FORM |= {"code": {"modules": [str], "digest": str}, "files": {None: {"sha256": place.DIGEST, "bytes": int}}}
FORM |= {"inputs": {None: {"path": str, "name": str, "kind": place.KIND, "digest": place.DIGEST}}}
FORM |= {"cost": {"started": str, **dict.fromkeys(("wall_seconds", "cpu_seconds", "peak_memory_mb"), int | float)}}


def _unlike(value: Any, form: Any, *where: str) -> Iterator[str]:
    """Yield the dotted names of the parts of a value that do not match a form (:data:`FORM`)."""
    if isinstance(form, dict) and isinstance(value, dict):
        for name in value if None in form else form:
            if name in value:
                yield from _unlike(value[name], form.get(name, form.get(None)), *where, name)
            else:
                yield ".".join([*where, name])
    elif isinstance(form, list) and isinstance(value, list):
        yield from (wrong for item in value for wrong in _unlike(item, *form, *where))
    elif isinstance(form, str) and isinstance(value, str) and re.fullmatch(form, value):
        return
    elif isinstance(form, dict | list | str) or not isinstance(value, form):
        yield ".".join(where)


class OtherVersionError(GranularityError):
    """Raised for a valid manifest that another version of this program wrote."""


_sound: set[bytes] = set()  # SHA-256 of manifests already found valid: each is read thousands of times


def parse(text: bytes, file: Path) -> dict[str, Any]:
    """Parse and check a manifest; return it without its seal. Raise GranularityError (corrupt) or OtherVersionError."""
    corrupt = f"{file}: corrupt (%s); delete the stamp that names it, and snakemake recomputes it"
    try:
        manifest = strict_json.parse_json(text, str(file))
    except GranularityError:
        manifest = None
    if not isinstance(manifest, dict) or "seal" not in manifest:
        raise GranularityError(corrupt % "not a manifest")
    del manifest["seal"]
    known_by = hashlib.sha256(text).digest()
    if known_by not in _sound and as_text(manifest).encode() != text:
        raise GranularityError(corrupt % "its seal does not match its content")
    if manifest.get("schema_version") != RESULT_VERSION:
        raise OtherVersionError(
            f"{file}: schema_version {manifest.get('schema_version')}, but this version reads {RESULT_VERSION}; move "
            "the folder away, and snakemake recomputes it"
        )
    if known_by not in _sound and (wrong := next(_unlike(manifest, FORM), None)) is not None:
        raise GranularityError(corrupt % f"'{wrong}' is missing or has a wrong value")
    if any(not place.is_plain(name) or name == MANIFEST for name in manifest["files"]):
        raise GranularityError(corrupt % "it lists a file outside the artifact")
    _sound.add(known_by)
    return manifest


def as_text(manifest: dict[str, Any]) -> str:
    """Return a manifest as JSON text with its seal, a SHA-256 that reveals accidental damage but is no signature."""
    return json.dumps({**manifest, "seal": _sha256(manifest)}, indent=2, ensure_ascii=False) + "\n"


def _sha256(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """Return a value as canonical JSON: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)


def content_digest(manifest: dict[str, Any]) -> str:
    """Return the digest of an artifact's content (kind, files and facts) from its manifest."""
    files = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    facts = {name: manifest["params"].get(name) for name in manifest["facts"]}
    kind, schema = manifest["kind"], manifest["schema_version"]
    return _sha256({"kind": kind, "schema": schema, "files": files, "facts": facts})


def key_of(manifest: Mapping[str, Any]) -> str:
    """Return a result's key, the hash of all that determines it, from its manifest or the entries ORIGIN of one."""
    return _sha256({name: manifest[name] for name in ORIGIN} | {"code": manifest["code"]["digest"]})[:32]


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Artifact:
    """An artifact: the name used to open it (for messages), its manifest, and the folder that the name resolved to."""

    path: Path
    manifest: dict[str, Any]
    folder: Path  # files are read here, because the name may point elsewhere a moment later

    @classmethod
    def open(cls, path: str | Path, kind: str | None = None) -> Artifact:
        """Open and verify an artifact, given as a folder, name, manifest or stamp. Files with checksums per record are
        left to their readers. Raise GranularityError if it is missing, of another kind, corrupt or truncated.
        """
        artifact = cls.peek(path)
        if kind is not None and artifact.kind != kind:
            raise GranularityError(f"{artifact.path}: is a '{artifact.kind}' artifact where '{kind}' is needed")
        for problem in artifact.corrupt(records=False):
            raise GranularityError(f"{problem}; {artifact.remedy}")
        return artifact

    @classmethod
    def peek(cls, path: str | Path) -> Artifact:
        """Read only the manifest, without verifying the data; for listings."""
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
    def remedy(self) -> str:
        """What to do if it is damaged, for messages."""
        if place.STORE in self.place.parts:  # it was reached without a name
            return f"delete the folder {self.path}; what needs it makes it again"
        return f"delete {place.stamp_of(self.path)}, and snakemake recomputes it"

    @property
    def place(self) -> Path:
        """The absolute path of its name."""
        return Path(os.path.abspath(self.path))

    @property
    def facts(self) -> dict[str, Any]:
        """The parameters that later stages may read; like the files, they enter the digest."""
        return {name: self.params[name] for name in self.manifest["facts"]}

    @property
    def params(self) -> dict[str, Any]:
        """All resolved parameters, for people to read."""
        return self.manifest["params"]

    @property
    def summary(self) -> dict[str, Any]:
        return self.manifest["summary"]

    def content(self, *names: str) -> str:
        """Return the SHA-256 over the kind, the files and the facts, except the facts called `names`."""
        files = {name: entry["sha256"] for name, entry in self.manifest["files"].items()}
        return _sha256([self.kind, files, {name: value for name, value in self.facts.items() if name not in names}])

    @property
    def size(self) -> int:
        """Total bytes of all data files."""
        return sum(entry["bytes"] for entry in self.manifest["files"].values())

    def corrupt(self, hashed: bool = True, anew: bool = False, records: bool = True) -> Iterator[str]:
        """Yield one line for each sign of damage. Raise UnreadableError if the system does not let a file be read.

        Args:
            hashed: hash the files; otherwise check only their sizes, which is quick.
            anew: also hash files that this machine has hashed before and that have not changed since.
            records: also hash files whose records have their own checksums.
        """
        files = self.manifest["files"]
        *_, store, kind, key = ("", *self.folder.parts)
        if store == place.STORE and kind[0] != "." and (kind, key) != (self.kind, self.manifest["key"]):
            yield f"{self.path / MANIFEST}: belongs to another result than its folder in the store"
        wrong = {name: flaw for name, entry in files.items() if (flaw := _damage(self.folder / name, entry["bytes"]))}
        yield from (f"{self.path / name}: {flaw}" for name, flaw in wrong.items())
        if hashed:
            counted = [name for name in files if name not in wrong and (records or CHECKED_BY not in files[name])]
            try:
                for name, digest in hashing.hashes(self.folder, counted, anew).items():
                    if digest != files[name]["sha256"]:
                        yield f"{self.path / name}: corrupt (its SHA-256 differs from the manifest)"
            except regular.UnreadableError:
                raise
            except GranularityError as error:
                yield str(error)

    def problems(self, **how: bool) -> Iterator[str]:
        """Yield what :meth:`corrupt` yields, and an unreadable file as a line too."""
        try:
            yield from self.corrupt(**how)
        except regular.UnreadableError as error:
            yield str(error)

    def unlike(self, stamp: Path) -> str | None:
        """Return what is wrong with a stamp file, or None if it belongs to this artifact."""
        try:
            text = regular.read_regular(stamp, LARGEST)
        except GranularityError as error:
            return str(error)
        if text == place.stamp_text(self.kind, self.digest).encode():
            return None
        return f"{stamp}: this stamp belongs to another result than {self.path}; delete it and run snakemake"

    def lineage(self) -> dict[str, Artifact]:
        """Return the artifacts that it was made from, by role, without those that no longer exist."""
        found = {}
        for role, entry in self.manifest["inputs"].items():
            with contextlib.suppress(GranularityError):
                source = Artifact.peek(self.folder / entry["path"])
                if source.digest == entry["digest"]:
                    found[role] = source
        return found

    def file(self, name: str) -> Path:
        """Return the path of one of its files. Raise GranularityError if the manifest does not list it."""
        if name not in self.manifest["files"]:
            raise GranularityError(
                f"{self.path / name}: is not a file of this artifact; it has {', '.join(self.manifest['files'])}"
            )
        return self.folder / name

    def table(self, name: str, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """Read a Parquet table or some columns. Raise GranularityError if it is not Parquet or lacks a column."""
        import pyarrow.parquet as pq

        with readable(self.path / name, "a Parquet table"):
            schema = pq.read_schema(self.file(name))
            missing = [column for column in columns or [] if column not in schema.names]
            if missing:
                raise GranularityError(f"{self.path / name}: has no column {missing}; it has {schema.names}")
            table = pq.ParquetFile(self.folder / name).read(columns=list(columns) if columns is not None else None)
        return table.to_pandas()

    def array(self, name: str, shape: tuple[int | None, ...] | None = None, dtype: type | None = None) -> np.ndarray:
        """Memory-map an array, copy-on-write. Raise GranularityError if dtype or shape (None: any length) differ."""
        import numpy as np

        with readable(self.path / name, "an array"):
            values = np.load(self.file(name), mmap_mode="c", allow_pickle=False)
        if shape is not None:
            expected = tuple(n if want is None else want for n, want in zip(values.shape, shape, strict=False))
            if (values.dtype, values.shape, values.ndim) != (dtype, expected, len(shape)):
                actual, required = (f"{values.dtype} of {values.shape}", f"{np.dtype(dtype)} of {shape}")
                raise GranularityError(f"{self.path / name}: is {actual}, but must be {required}")
        return values

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """Read weights from a safetensors file."""
        from safetensors.torch import load_file

        with readable(self.path / name, "a safetensors file"):
            return load_file(self.file(name))

    def json(self, name: str, *keys: str) -> Any:
        """Read a JSON file. If keys are given, it must be a mapping that contains them."""
        value = strict_json.parse_json(regular.read_regular(self.file(name), LARGEST), str(self.path / name))
        if keys and not (isinstance(value, dict) and value.keys() >= {*keys}):
            raise GranularityError(f"{self.path / name}: must be a mapping with the keys {', '.join(keys)}")
        return value


def _damage(file: Path, size: int) -> str | None:
    """Return what is wrong with a file that should have `size` bytes, or None, without opening it."""
    try:
        status = file.lstat()
        if os.path.realpath(file.parent) != str(file.parent):
            return "reached through a link"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        raise regular.unreadable(file, error) from None
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return None if status.st_size == size else f"corrupt ({status.st_size} bytes, the manifest says {size})"


@contextlib.contextmanager
def readable(file: Path, what: str) -> Iterator[None]:
    """Turn any error of a library that cannot read a file into a GranularityError of one line."""
    try:
        yield
    except GranularityError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
        if "allow_pickle" in reason or "weights_only" in reason:  # the library's advice is to unpickle untrusted data
            reason = "it contains Python objects, which could run any code"
        raise GranularityError(f"{file}: cannot be read as {what} ({reason})") from None


# ---------------------------------------------------------------- costs


def by_stage(artifacts: Iterable[Artifact]) -> list[dict[str, Any]]:
    """Return the costs of artifacts, a row per kind, in order of first appearance.

    `jobs`; `wall_seconds` and `cpu_seconds`, summed; `peak_memory_mb`, the largest. If any job used a GPU, also
    `gpu_seconds`, the wall-clock time of the GPU jobs, and `gpu_peak_memory_mb`, the largest or None.
    """
    stages: dict[str, list[tuple[dict[str, Any], bool]]] = {}
    for artifact in artifacts:
        # `hardware` names only GPUs that torch used; for FAISS, the parameters of the clustering name the GPU.
        on_gpu = "gpu" in artifact.manifest["hardware"] or bool(artifact.params.get("gpu"))
        stages.setdefault(artifact.kind, []).append((artifact.manifest["cost"], on_gpu))
    any_gpu = any(on_gpu for costs in stages.values() for _, on_gpu in costs)
    rows = []
    for stage, costs in stages.items():
        row: dict[str, Any] = {"stage": stage, "jobs": len(costs)}
        row |= {key: sum(cost[key] for cost, _ in costs) for key in ("wall_seconds", "cpu_seconds")}
        row["peak_memory_mb"] = max(cost["peak_memory_mb"] for cost, _ in costs)
        if any_gpu:
            gpu_costs = [cost for cost, on_gpu in costs if on_gpu]
            peaks = [cost["gpu_peak_memory_mb"] for cost in gpu_costs if "gpu_peak_memory_mb" in cost]
            row["gpu_seconds"] = sum(cost["wall_seconds"] for cost in gpu_costs)
            row["gpu_peak_memory_mb"] = max(peaks, default=None)
        rows.append(row)
    return rows
