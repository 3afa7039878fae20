"""The artifact contract: stages meet only through files, and nothing is read unverified.

An artifact is a folder of data files with one `manifest.json` that says what they are, how they were made and what
they hash to. Tables are Parquet, arrays .npy, weights safetensors, everything else JSON; nothing is pickled.

A writer works in a private folder beside the target and publishes it with one rename, so a reader sees the old
artifact or the whole new one. A reader hashes every file and compares the inputs that the manifest names with those
that lie there now: a flipped byte, a truncated file or a stale input is an error that names the file.

All that is against accidents. Seal, key and digest are hashes without a secret: who rewrites an artifact and makes
them anew has written another artifact, and only what follows from it, made from the old one, shows it.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import resource
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.store import cache, manifests
from granularity.store.claim import Claim
from granularity.store.code import RESULT_VERSION, code_digest
from granularity.store.manifests import canonical_json
from granularity.store.provenance import gpu_memory, hardware, package_versions, versions_digest

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import torch

MANIFEST = "manifest.json"


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Artifact:
    """A verified artifact: `path` is its folder, `manifest` what `manifest.json` says."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path, kind: str | None = None) -> Artifact:
        """Verify an artifact and open it.

        Args:
            path: its folder, or the manifest in it.
            kind: the kind it must have.

        Raises:
            GranularityError: missing, of another kind, corrupt, truncated, or stale against its own inputs.
        """
        artifact = cls.peek(path)
        if kind is not None and artifact.kind != kind:
            raise GranularityError(f"{artifact.path}: is a '{artifact.kind}' artifact where '{kind}' is needed")
        for problem in artifact.problems():
            raise GranularityError(f"{problem}; make it again (snakemake does when the folder is deleted)")
        return artifact

    @classmethod
    def peek(cls, path: str | Path) -> Artifact:
        """Read the manifest alone, without verifying the data; for listings."""
        folder = Path(path)
        folder = folder.parent if folder.name == MANIFEST else folder
        file = folder / MANIFEST
        try:
            with open(file, encoding="utf-8", newline="") as stream:
                text = stream.read()
        except FileNotFoundError:
            raise GranularityError(f"{folder}: there is no artifact here (no {MANIFEST})") from None
        except OSError as error:
            raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
        except ValueError:
            raise GranularityError(f"{file}: corrupt (not a manifest); make the artifact again") from None
        return cls(folder, manifests.parse(text, file, RESULT_VERSION))

    @property
    def kind(self) -> str:
        return self.manifest["kind"]

    @property
    def digest(self) -> str:
        """SHA-256 over the kind and the contents of all data files; not over times, versions or hardware."""
        return self.manifest["digest"]

    @property
    def params(self) -> dict[str, Any]:
        return self.manifest["params"]

    @property
    def summary(self) -> dict[str, Any]:
        return self.manifest["summary"]

    def problems(self) -> Iterator[str]:
        """All that is wrong, one line each: corrupt or missing files, files nobody listed, stale inputs."""
        yield from self.corrupt()
        yield from self.stale()

    def corrupt(self, hashed: bool = True) -> Iterator[str]:
        """All that is wrong with its own files; unless `hashed`, as far as their sizes show it, which is quick."""
        files = self.manifest["files"]
        if _content_digest(self.kind, files) != self.digest:
            yield f"{self.path / MANIFEST}: corrupt (its digest does not match the files it lists)"
        made_from = {role: entry["digest"] for role, entry in self.manifest["inputs"].items()}
        key = self.manifest.get("key")
        if key is not None and key != _key(self.kind, self.params, self.manifest["code"]["digest"], made_from):
            yield f"{self.path / MANIFEST}: corrupt (its key does not match its parameters, code and inputs)"
        if (self.path / MANIFEST).is_symlink():
            yield f"{self.path / MANIFEST}: a link where a file should be"
        for name, entry in files.items():
            file = self.path / name
            try:
                there = file.lstat()
                if stat.S_ISLNK(there.st_mode):
                    yield f"{file}: a link where a file should be"
                elif not stat.S_ISREG(there.st_mode):
                    yield f"{file}: no regular file"
                elif there.st_size != entry["bytes"]:
                    yield f"{file}: corrupt ({there.st_size} bytes, the manifest says {entry['bytes']})"
                elif hashed and hash_file(file) != entry["sha256"]:
                    yield f"{file}: corrupt (its SHA-256 is not the manifest's)"
            except (FileNotFoundError, NotADirectoryError):
                yield f"{file}: missing"
            except OSError as error:
                yield f"{file}: cannot be read ({error.strerror or error})"
        for file in sorted(self.path.rglob("*")):
            name = file.relative_to(self.path).as_posix()
            folder = file.is_dir() and not file.is_symlink()
            if not folder and name not in files and name != MANIFEST and not file.name.startswith("."):
                yield f"{file}: not listed in the manifest"

    def stale(self, _seen: set[Path] | None = None) -> Iterator[str]:
        """Inputs that have changed since this artifact was made, however far up; inputs that are gone do not count."""
        seen = set() if _seen is None else _seen
        seen.add(self.path.resolve())
        for role, entry in self.manifest["inputs"].items():
            with contextlib.suppress(GranularityError):
                source = Artifact.peek(self.path / entry["path"])
                if source.digest != entry["digest"]:
                    yield f"{self.path}: stale (made from another '{role}' than {source.path.resolve()} holds now)"
                if source.path.resolve() not in seen:
                    yield from source.stale(seen)

    def lineage(self) -> dict[str, Artifact]:
        """The inputs that lie where the manifest says, by role."""
        found = {}
        for role, entry in self.manifest["inputs"].items():
            with contextlib.suppress(GranularityError):
                found[role] = Artifact.peek(self.path / entry["path"])
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
            schema = pq.read_schema(self.path / name)
            missing = [column for column in columns or [] if column not in schema.names]
            if missing:
                raise GranularityError(f"{self.path / name}: has no column {missing}; it has {schema.names}")
            table = pq.ParquetFile(self.path / name).read(columns=list(columns) if columns is not None else None)
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
            values = np.load(self.path / name, mmap_mode="c", allow_pickle=False)
        if (dtype is not None and values.dtype != dtype) or (shape is not None and not _fits(values.shape, shape)):
            wanted = f"{np.dtype(dtype) if dtype else 'numbers'} of ({', '.join(str(n or 'any') for n in shape or ())})"
            raise GranularityError(f"{self.path / name}: is {values.dtype} of {values.shape}, and must be {wanted}")
        return values

    def tensors(self, name: str) -> dict[str, torch.Tensor]:
        """Weights from a safetensors file."""
        from safetensors.torch import load_file

        with readable(self.path / name, "a safetensors file"):
            return load_file(self.path / name)

    def json(self, name: str, *keys: str) -> Any:
        """A JSON file; with keys, a mapping that has them."""
        with readable(self.path / name, "a JSON file"):
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
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
        raise GranularityError(f"{file}: cannot be read as {what} ({reason})") from None


def hash_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _content_digest(kind: str, files: dict[str, dict]) -> str:
    content = {
        "kind": kind,
        "schema": RESULT_VERSION,
        "files": {name: files[name]["sha256"] for name in files},
    }
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def _key(kind: str, params: dict[str, Any], code: str, inputs: dict[str, str]) -> str:
    return hashlib.sha256(canonical_json([kind, params, code, inputs]).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- writing


@dataclass
class Writer:
    """Writes one artifact; use :func:`create`. Every method takes a file name relative to the artifact."""

    folder: Path
    work: Path
    summary: dict[str, Any] = field(default_factory=dict)
    described: dict[str, dict] = field(default_factory=dict)
    cached: dict[str, Any] | None = None  # the manifest of a shared result, which is already in the folder

    def table(self, name: str, frame: pd.DataFrame | pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
        table = table.replace_schema_metadata()
        pq.write_table(table, self.path(name), compression="zstd")
        columns = {column.name: str(column.type) for column in table.schema}
        self.described[name] = {"rows": table.num_rows, "columns": columns}

    def array(self, name: str, values: np.ndarray) -> None:
        import numpy as np

        np.save(self.path(name), np.ascontiguousarray(values), allow_pickle=False)
        self.describe_array(name, values)

    def describe_array(self, name: str, values: np.ndarray) -> None:
        self.described[name] = {"shape": list(values.shape), "dtype": str(values.dtype)}

    def tensors(self, name: str, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        try:
            save_file({key: value.contiguous() for key, value in tensors.items()}, self.path(name), metadata)
        except SafetensorError as error:  # a full disk, most likely
            raise OSError(str(error)) from None
        self.described[name] = {
            "tensors": len(tensors),
            "parameters": sum(value.numel() for value in tensors.values()),
        }

    def json(self, name: str, value: Any) -> None:
        self.path(name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def text(self, name: str, value: str) -> None:
        self.path(name).write_text(value, encoding="utf-8")

    def path(self, name: str) -> Path:
        """The path of a file in the artifact, for a stage that writes it itself; its folder is made."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


@contextlib.contextmanager
def create(
    output: str | Path,
    kind: str,
    code: Sequence[str],
    inputs: dict[str, Artifact],
    params: dict[str, Any],
    resumable: bool = False,
    shared: bool = False,
    files: Sequence[str] = ("*",),
    options: dict[str, Any] | None = None,
) -> Iterator[Writer]:
    """Write an artifact and publish it whole, or leave what was there untouched.

    Args:
        output: its folder, or the manifest in it.
        kind: what it is.
        code: the stage's module, and the modules or files of the user's that its options chose; their digest is
            recorded, see :func:`granularity.store.code.code_digest`.
        inputs: verified artifacts it is made from, by role.
        params: resolved parameters, seeds included: everything but the inputs and the code that decides its bytes.
        resumable: keep `writer.work`, a private folder keyed by all that decides bytes, when the work dies;
            the next writer with the same key finds it and continues, one with another key starts clean.
        shared: look into the cache of :mod:`.cache`, if there is one. Where `writer.cached` is set, the
            result is there already and nothing is to be written.
        files: names or patterns of the files that such an artifact may hold; others are not deleted with it.
        options: what the stage was asked for, recorded beside `params`, what it made of that.

    Raises:
        GranularityError: the disk is full, or the folder cannot be written.
    """
    output = Path(output)
    output = output.parent if output.name == MANIFEST else output
    started, clock, cpu_started = time.time(), time.monotonic(), time.process_time()
    digest_of_code = code_digest(*code)
    _refuse_other_lineage(inputs)
    key = _key(kind, params, digest_of_code, {role: source.digest for role, source in inputs.items()})
    work = output.parent / f".{output.name}.work-{key}-{versions_digest()}"
    before, claim, folder = _seal_of(output), None, None
    try:
        _refuse_to_replace(output, kind, inputs, files)
        output.parent.mkdir(parents=True, exist_ok=True)
        claim = Claim(output, key)
        folder = output.parent / f".{output.name}.new-{claim.token}"
        _remove_leftovers(output, keep=work if resumable else None)
        folder.mkdir()
        if resumable:
            work.mkdir(exist_ok=True)
            for torn in work.glob(".*"):  # checkpoints that a kill left half written
                torn.unlink(missing_ok=True)
        place = cache.entry(kind, key) if shared else None
        writer = Writer(folder, work, cached=_from_cache(place, folder, kind, key) if place else None)
        with claim.heartbeat(), interrupt.resumable() if resumable else contextlib.nullcontext():
            yield writer
        described = writer.cached["files"] if writer.cached else _describe_files(writer)
        manifest = {
            "kind": kind,
            "schema_version": RESULT_VERSION,
            "digest": _content_digest(kind, described),
            "key": key,
            "files": described,
            "inputs": {
                role: {
                    "path": os.path.relpath(source.path.resolve(), output.resolve()),
                    "kind": source.kind,
                    "digest": source.digest,
                }
                for role, source in inputs.items()
            },
            "options": options or {},
            "params": params,
            "summary": writer.cached["summary"] if writer.cached else writer.summary,
            "code": {"modules": list(code), "digest": digest_of_code},
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "packages": package_versions(),
            "hardware": hardware(),
            "cost": {
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
                "wall_seconds": round(time.monotonic() - clock, 3),
                "cpu_seconds": round(time.process_time() - cpu_started, 3),
                "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
                **gpu_memory(),
            },
        }
        if writer.cached:
            manifest |= {name: writer.cached[name] for name in ("packages", "hardware", "cost")} | {
                "cached": str(place)
            }
        writer.text(MANIFEST, manifests.as_text({**manifest, "seal": manifests.seal(manifest)}))
        claim.check()
        _refuse_another_result(output, before, key, manifest["digest"])
        with interrupt.resumable():  # a job that has made its result has not failed, whatever it is told now
            _publish(folder, output)
            if claim.held():  # or else its new owner may work there
                _remove(work, output)
            if place:
                cache.store(output, place)
    except OSError as error:
        if claim is not None:
            claim.check()  # its new owner has cleaned up: that is why a file is gone
        where = Path(error.filename or output)
        if not where.absolute().is_relative_to(output.parent.absolute()):  # something the stage reads
            raise GranularityError(f"{where}: cannot be read ({error.strerror or error})") from error
        raise GranularityError(
            f"{where}: cannot be written ({error.strerror or error}); nothing was published. "
            "Free space or fix the permission, and run again"
        ) from error
    finally:
        if claim is not None:
            shutil.rmtree(folder, ignore_errors=True)
            if claim.held():  # or else its new owner may be about to write there
                with contextlib.suppress(OSError):
                    work.rmdir()  # where nothing was finished, there is nothing to keep
            claim.release()


def _refuse_other_lineage(inputs: dict[str, Artifact]) -> None:
    """Refuse inputs that were made from others than those they are used with."""
    for source in inputs.values():
        if source.kind == "encoder":  # weights serve any images
            continue
        for role, entry in source.manifest["inputs"].items():
            if role in inputs and inputs[role].digest != entry["digest"]:
                raise GranularityError(
                    f"{source.path}: was made from another '{role}' than {inputs[role].path}; make it again "
                    "(snakemake does when the folder is deleted)"
                )


def _refuse_to_replace(output: Path, kind: str, inputs: dict[str, Artifact], files: Sequence[str]) -> None:
    """Refuse to replace anything but a result of this kind, or what is left of one."""
    for role, source in inputs.items():
        if source.path.resolve().is_relative_to(output.resolve()):
            raise GranularityError(f"{output}: the input '{role}' lies there; choose another --output")
    for file in output.rglob("*") if output.is_dir() else ():
        name = file.relative_to(output).as_posix()
        known = any(fnmatchcase(name, pattern) for pattern in (MANIFEST, *files))
        if not file.is_dir() and not name.startswith(".") and not known:
            raise GranularityError(
                f"{file}: is no part of a '{kind}' artifact, and would be deleted with {output}; choose another "
                "--output, or delete it yourself"
            )


def _from_cache(place: Path, folder: Path, kind: str, key: str) -> dict[str, Any] | None:
    """Copy a shared result into a writer's folder, verify the copy, and return its manifest."""
    if not cache.copy_in(place, folder):
        return None
    try:
        copy = Artifact.peek(folder)
        wrong = next(copy.corrupt(), None)
        if copy.kind != kind or copy.manifest.get("key") != key:
            wrong = f"{place}: is another artifact than its name says"
    except GranularityError as error:
        wrong = str(error)
    if wrong is not None:
        cache.discard(place, folder, wrong.replace(str(folder), str(place)))
        return None
    return copy.manifest


def _seal_of(output: Path) -> str | None:
    """What tells one published artifact from the next at the same place."""
    try:
        return json.loads((output / MANIFEST).read_text(encoding="utf-8"))["seal"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _refuse_another_result(output: Path, before: str | None, key: str, digest: str) -> None:
    """Refuse to replace a different result that another writer published meanwhile from the same inputs."""
    if _seal_of(output) in (None, before):
        return
    other = Artifact.peek(output)
    if other.manifest.get("key") == key and other.digest != digest:
        raise GranularityError(
            f"{output}: another process published a different result of the same inputs, parameters and code meanwhile "
            f"({other.digest[:12]}, this one {digest[:12]}); it stays as it is, and this one is not published. Delete "
            "the folder and run again"
        )


def _describe_files(writer: Writer) -> dict[str, dict]:
    files = {}
    for file in sorted(path for path in writer.folder.rglob("*") if path.is_file()):
        name = file.relative_to(writer.folder).as_posix()
        files[name] = {
            "sha256": hash_file(file),
            "bytes": file.stat().st_size,
            **writer.described.get(name, {}),
        }
    return files


def _publish(folder: Path, output: Path) -> None:
    for file in (path for path in folder.rglob("*") if path.is_file()):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    old = folder.with_name(folder.name + "-old")
    if output.exists() and any(output.iterdir()):
        output.rename(old)
    try:
        folder.rename(output)  # onto a missing or empty folder: atomic
    except BaseException:
        if old.exists():
            old.rename(output)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _remove_leftovers(output: Path, keep: Path | None) -> None:
    """Delete what earlier writers of this artifact left: dead, or about to stop because they have lost their claim."""
    name = glob.escape(output.name)
    for pattern in (f".{name}.work-*", f".{name}.new-*"):
        for path in output.parent.glob(pattern):
            if path != keep:
                _remove(path, output)


def _remove(folder: Path, output: Path) -> None:
    """Delete a folder that an orphan may still write in; moved away first, or it might add to it meanwhile."""
    aside = output.with_name(f".{output.name}.new-{secrets.token_hex(8)}")
    with contextlib.suppress(OSError):
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write one file so that a reader, or a process killed at any moment, never sees half of it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # two nodes may have the same process id
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# ---------------------------------------------------------------- a whole folder of them


def find(root: str | Path) -> list[Path]:
    """Folders of all artifacts at or below a folder, sorted."""
    root = Path(root)
    if not root.exists():
        raise GranularityError(f"{root}: there is no such folder")

    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    found, seen = [], set()
    for folder, folders, files in os.walk(root, onerror=unreadable, followlinks=True):
        there = os.stat(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        if (there.st_dev, there.st_ino) in seen:  # a link to a folder above, or to another one
            folders[:] = []
        elif MANIFEST in {*files, *folders}:
            found.append(Path(folder))
        seen.add((there.st_dev, there.st_ino))
    return sorted(found)
