"""Writing artifacts: in a private folder, published whole as a generation that never changes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.store import generations, hashing, manifests
from granularity.store.artifacts import MANIFEST, Artifact, content_digest, key_of
from granularity.store.claim import Claim, LostError
from granularity.store.provenance import gpu_memory, hardware, package_versions

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import torch


NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)


@dataclass
class Writer:
    """Writes one artifact; use :func:`create`. Every method takes a file name relative to the artifact.

    Attributes:
        folder, work: where it is written, and where an unfinished job of its key saves its work.
        store: the store that it will lie in.
        parts: results of single runs that it holds, by role, which so count as what it was made from.
    """

    folder: Path
    work: Path
    store: Path
    summary: dict[str, Any] = field(default_factory=dict)
    described: dict[str, dict] = field(default_factory=dict)
    parts: dict[str, Artifact] = field(default_factory=dict)

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

    def share(self, name: str, source: Artifact, file: str) -> None:
        """Let a file of another artifact be a file of this one, too, without room of its own."""
        link(source.folder / file, self.path(name))
        told = source.manifest["files"][file]
        self.described[name] = {key: value for key, value in told.items() if key != "bytes"}

    def path(self, name: str) -> Path:
        """The path of a file in the artifact, for a stage that writes it itself; its folder is made."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


def link(source: Path, target: Path) -> None:
    """Let a file have a second name, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copyfile(source, target)


@contextlib.contextmanager
def create(
    output: Path,
    origin: Mapping[str, Any],
    inputs: Mapping[str, Artifact],
    params: Mapping[str, Any],
    facts: Sequence[str] = (),
    resumable: bool = False,
    files: Sequence[str] = ("*",),
) -> Iterator[Writer]:
    """Write an artifact and publish it whole, or leave everything as it was.

    Args:
        output: the name that is to lead to it.
        origin: what decides its bytes, see :func:`granularity.store.task.origin`.
        inputs: verified artifacts it is made from, by role.
        params: resolved parameters.
        facts: names of those parameters that others may read of it; they count in its digest.
        resumable: `writer.work`, a folder of the result's key, holds what an earlier job had saved when it died.
        files: names or patterns of the files that it may hold.

    Raises:
        GranularityError: the disk is full, the folder cannot be written, or inputs do not belong together.
        LostError: another writer makes this result.
    """
    began = time.time(), time.monotonic(), time.process_time()
    _refuse_other_lineage(inputs)
    kind, key = origin["kind"], key_of(origin)
    store = generations.store_of(output)
    folder = store / generations.NEW / secrets.token_hex(8)
    work = generations.work_folder(store, kind, key)
    claim = None
    try:
        generations.refuse_to_hide(output)
        claim = Claim(store, kind, key, output)
        folder.mkdir(parents=True)
        if resumable:
            generations.open_work(work, output)
        writer = Writer(folder, work, store)
        with claim.heartbeat(), interrupt.resumable() if resumable else contextlib.nullcontext():
            yield writer
        described = _describe_files(writer, kind, files)
        manifest = _write_manifest(writer, origin, str(output), described, inputs, params, facts, began)
        with interrupt.resumable():  # a job that has made its result has not failed, whatever it is told now
            target = publish(folder, store, manifest)
            generations.point(output, target.folder, kind, target.digest)
            if claim.held():  # or else its new owner may work there
                generations.close_work(work)
                if not folder.exists():  # it is the one published; deleting other links changed the times of its files
                    _remember(target.folder, manifest)
    except (interrupt.Stopped, GranularityError, OSError) as error:
        if claim is not None and not claim.held():  # its new owner has tidied up: that is why a file is gone
            raise LostError(claim.lost()) from None
        if not isinstance(error, OSError):
            raise
        where = Path(error.filename or output)
        above = (store.absolute().parent, output.absolute().parent)
        if not any(where.absolute().is_relative_to(place) for place in above):  # something the stage reads
            raise GranularityError(f"{where}: cannot be read ({error.strerror or error})") from error
        raise GranularityError(
            f"{where}: cannot be written ({error.strerror or error}); nothing was published. "
            "Free space or fix the permission, and run again"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if claim is not None:
            if claim.held():  # or else its new owner may be about to write there
                with contextlib.suppress(OSError):
                    work.rmdir()  # where nothing was finished, there is nothing to keep
                    generations.close_work(work)
            claim.release()


def _write_manifest(
    writer: Writer,
    origin: Mapping[str, Any],
    name: str,
    described: Mapping[str, dict],
    inputs: Mapping[str, Artifact],
    params: Mapping[str, Any],
    facts: Sequence[str],
    began: tuple[float, float, float],
) -> dict[str, Any]:
    key = key_of(origin)
    place = generations.generation(writer.store, origin["kind"], key).resolve()
    manifest = {
        **origin,
        "key": key,
        "name": name,
        "files": dict(described),
        "inputs": _lineage({**inputs, **writer.parts}, place),
        "params": dict(params),
        "facts": list(facts),
        "summary": writer.summary,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "all_packages": package_versions(),
        "hardware": hardware(),
        "cost": _cost(*began),
    }
    manifest["digest"] = content_digest(manifest)
    writer.text(MANIFEST, manifests.as_text({**manifest, "seal": manifests.seal(manifest)}))
    return manifest


def keep(
    store: Path, origin: Mapping[str, Any], name: str, began: tuple[float, float, float], fill: Callable[[Writer], None]
) -> Artifact:
    """Publish the result of one run, which no name leads to: those that hold it name it as what they are made from.

    Whoever needs it finds it by its key (:func:`sound`); of two that make it at once, the first stays.

    Args:
        origin: what decides its bytes, as of :func:`create`.
        name: of the run, for people.
        began: readings of the clocks `time`, `monotonic` and `process_time` before it.
        fill: writes its files.
    """
    folder = store / generations.NEW / secrets.token_hex(8)
    folder.mkdir(parents=True)
    try:
        writer = Writer(folder, folder, store)
        fill(writer)
        described = _describe_files(writer, origin["kind"], ("*",))
        manifest = _write_manifest(writer, origin, name, described, {}, origin["options"], (), began)
        return publish(folder, store, manifest, durable=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, store: Path, manifest: Mapping[str, Any], durable: bool = True) -> Artifact:
    """Move a whole artifact to its place in the store; what a sound one of the same key already holds stays.

    Args:
        durable: whether to wait until it is on the disk. What is torn by a power cut is seen to be, and made again.

    Returns:
        the artifact that lies there now.
    """
    target = generations.generation(store, manifest["kind"], manifest["key"])
    while not generations.publish(folder, target, durable):
        found = sound(store, manifest["kind"], manifest["key"])
        if found is None:  # it was damaged, and lies aside now
            continue
        if found.digest != manifest["digest"]:
            say(
                f"{target}: another writer published a different result of the same inputs, options and code "
                f"({found.digest[:12]}, this one {manifest['digest'][:12]}); it stays, and this one is dropped"
            )
        return found
    _remember(target, manifest)
    return Artifact.peek(target)


def _remember(folder: Path, manifest: Mapping[str, Any]) -> None:
    hashing.remember(folder, {name: entry["sha256"] for name, entry in manifest["files"].items()})


def sound(store: Path, kind: str, key: str) -> Artifact | None:
    """The generation of a key, verified; None where there is none. A damaged one is put aside."""
    folder = generations.generation(store, kind, key)
    if not os.path.lexists(folder):
        return None
    try:
        found = Artifact.peek(folder)
        wrong = next(found.corrupt(), None)
    except GranularityError as error:
        wrong = str(error)
    if wrong is not None:
        generations.put_aside(folder, wrong)
        return None
    return found


def _lineage(inputs: Mapping[str, Artifact], folder: Path) -> dict[str, dict[str, str]]:
    """What the manifest of a generation says of its inputs."""
    return {
        role: {
            "path": os.path.relpath(source.folder, folder),
            "name": str(source.path),
            "kind": source.kind,
            "digest": source.digest,
        }
        for role, source in inputs.items()
    }


def _cost(started: float, clock: float, cpu: float) -> dict[str, Any]:
    """What a job has cost so far, since these readings of the three clocks."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "wall_seconds": round(time.monotonic() - clock, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        **gpu_memory(),
    }


def _refuse_other_lineage(inputs: Mapping[str, Artifact]) -> None:
    """Refuse inputs that were made from others than those they are used with."""
    for source in inputs.values():
        if source.kind == "encoder":  # weights serve any images
            continue
        for role, entry in source.manifest["inputs"].items():
            if role in inputs and inputs[role].digest != entry["digest"]:
                raise GranularityError(
                    f"{source.path}: was made from another '{role}' than {inputs[role].path}; delete "
                    f"{generations.stamp_of(source.path)}, and snakemake makes it again"
                )


def _describe_files(writer: Writer, kind: str, patterns: Sequence[str]) -> dict[str, dict]:
    paths = {path.relative_to(writer.folder).as_posix(): path for path in writer.folder.rglob("*") if path.is_file()}
    known = {name: about["sha256"] for name, about in writer.described.items() if "sha256" in about}
    new = sorted(paths.keys() - known.keys())
    known |= dict(zip(new, hashing.digests([paths[name] for name in new]), strict=True))
    files = {}
    for name, path in sorted(paths.items()):
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            raise GranularityError(f"{name}: is none of the files that stage '{kind}' declares: {', '.join(patterns)}")
        files[name] = {"sha256": known[name], "bytes": path.stat().st_size, **writer.described.get(name, {})}
    return files
