"""Write artifacts in a private folder, then publish each as a generation that never changes."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.metadata
import json
import os
import platform
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import interrupt, regular
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.store import hashing, place
from granularity.store.artifact import Artifact, OtherVersionError, as_text, content_digest, key_of
from granularity.store.lock import Lock, LostError
from granularity.store.place import MANIFEST

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import torch


PACKAGES: tuple[str, ...] = (
    "granularity",
    "snakemake",
    "torch",
    "torchvision",
    "timm",
    "open_clip_torch",
    "faiss-cpu",
    "faiss-gpu",
)
PACKAGES += ("numpy", "scipy", "pandas", "pyarrow", "scikit-learn", "safetensors", "pillow", "matplotlib")
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)
Began = tuple[float, float, float]  # `time`, `monotonic`, and CPU seconds
Values = Mapping[str, Any]
Inputs = Mapping[str, Artifact]
Names = Sequence[str]
ALL = ("*",)  # files


@dataclass
class Writer:
    """Writes one artifact; use :func:`create`. Every method takes a file name relative to the artifact."""

    folder: Path  # where it is written
    work: Path  # where an unfinished job of its key saves its work
    store: Path  # where it will be published
    summary: dict[str, Any] = field(default_factory=dict)
    described: dict[str, dict] = field(default_factory=dict)
    parts: dict[str, Artifact] = field(default_factory=dict)  # single runs that it contains, by role; they are inputs

    def table(self, name: str, frame: pd.DataFrame | pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
        table = table.replace_schema_metadata()
        pq.write_table(table, self.path(name), compression="zstd")
        self.described[name] = {"rows": table.num_rows, "columns": {one.name: str(one.type) for one in table.schema}}

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
        self.described[name] = {"tensors": len(tensors), "parameters": sum(one.numel() for one in tensors.values())}

    def json(self, name: str, value: Any) -> None:
        self.text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def text(self, name: str, value: str) -> None:
        self.path(name).write_text(value, encoding="utf-8")

    def share(self, name: str, source: Artifact, file: str) -> None:
        """Include a file of another artifact by a hard link, which takes no space."""
        link(source.folder / file, self.path(name))
        told = source.manifest["files"][file]
        self.described[name] = {key: value for key, value in told.items() if key != "bytes"}

    def path(self, name: str) -> Path:
        """Return the path for a file that a stage writes itself; create its folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


def link(source: Path, target: Path) -> None:
    """Create a hard link, or a copy if the file system has no links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copyfile(source, target)


@contextlib.contextmanager
def create(
    output: Path,
    origin: Values,
    inputs: Inputs,
    params: Values,
    facts: Names = (),
    resumable=False,
    files: Names = ("*",),
    since: Began | None = None,
) -> Iterator[Writer]:
    """Write an artifact and publish it complete, or change nothing.

    Args:
        output: the name that will point to it.
        origin: what determines its bytes, see :attr:`granularity.store.task.Task.origin`.
        inputs: the verified artifacts it is made from, by role.
        facts: names of the parameters that later stages may read; they enter its digest.
        resumable: keep `writer.work`, a folder for this key, with what an earlier job saved before it died.
        files: names or patterns of the files that it may contain.
        since: when the job began, which may have read and computed before; now, if omitted.

    Raises GranularityError if the disk is full, the folder is not writable or inputs do not belong together, and
    LostError if another process is computing this result.
    """
    since = since or began()
    _refuse_other_lineage(inputs)
    kind, key, store = origin["kind"], key_of(origin), place.store_of(output)
    work = place.work_folder(store, kind, key)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_told(output, store))
        place.refuse_to_hide(output)
        lock = stack.enter_context(Lock(place.lock_file(store, kind, key), place.name_in(store, output)))
        folder = stack.enter_context(place.new_folder(store))
        try:
            if resumable:
                place.open_work(work, output)
            writer = Writer(folder, work, store)
            with interrupt.resumable() if resumable else contextlib.nullcontext():
                yield writer
            manifest = _write_manifest(writer, origin, str(output), inputs, params, facts, files, since)
            with interrupt.resumable():  # the result exists: a signal that comes now is no failure
                artifact = publish(folder, store, manifest)
                place.point(output, artifact.folder, kind, artifact.digest)
                if lock.held():  # otherwise its new owner may work there
                    place.close_work(work)
                    if not folder.exists():  # it was published; deleting hard links has changed its files' times
                        _remember(artifact.folder, manifest)
        except (interrupt.Stopped, GranularityError, OSError):
            if not lock.held():  # a file is missing because the new owner has cleaned up
                raise LostError(f"{output}: another process has taken over, because this one was silent") from None
            raise
        finally:
            if lock.held():
                with contextlib.suppress(OSError):
                    work.rmdir()  # empty: there is nothing to keep
                    place.close_work(work)


@contextlib.contextmanager
def _told(output: Path, store: Path) -> Iterator[None]:
    """Turn an OSError into one line that says what could not be read or written."""
    try:
        yield
    except OSError as error:
        where, reason = Path(error.filename or output), error.strerror or error
        above = (store.absolute().parent, output.absolute().parent)
        if not any(where.absolute().is_relative_to(folder) for folder in above):  # a file that the stage reads
            raise GranularityError(f"{where}: cannot be read ({reason})") from error
        raise GranularityError(
            f"{where}: cannot be written ({reason}); nothing was published. Free space or fix the permission, and run "
            "again"
        ) from error


def keep(store: Path, origin: Values, name: str, since: Began, fill: Callable[[Writer], None]) -> Artifact:
    """Publish the result of a single run, written by `fill`. It has no name and is found by its key (:func:`sound`)."""
    with place.new_folder(store) as folder:
        writer = Writer(folder, folder, store)
        fill(writer)
        manifest = _write_manifest(writer, origin, name, {}, origin["options"], (), ALL, since)
        return publish(folder, store, manifest, durable=False)


def again(old: Artifact, origin: Values, parts: Inputs, **said: Any) -> Artifact:
    """Publish a result's files again under another origin; `parts`: the single runs it contains that were replaced."""
    store = place.store_of(old.place)
    with place.new_folder(store) as folder:
        for name in old.manifest["files"]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            link(old.folder / name, folder / name)
        manifest = {**old.manifest, **origin, **said}
        manifest["key"] = key_of(manifest)
        target = place.generation(store, old.kind, manifest["key"])
        held = {role: {"path": os.path.relpath(part.folder, target)} for role, part in parts.items()}
        manifest["inputs"] = {role: entry | held.get(role, {}) for role, entry in old.manifest["inputs"].items()}
        (folder / MANIFEST).write_text(as_text(manifest), encoding="utf-8")
        return publish(folder, store, manifest)


def publish(folder: Path, store: Path, manifest: Values, durable: bool = True) -> Artifact:
    """Move a complete artifact to its place unless a valid one has its key; return the one that lies there."""
    kind, key, digest = manifest["kind"], manifest["key"], manifest["digest"]
    target = place.generation(store, kind, key)
    while not place.publish(folder, target, durable):
        artifact = sound(store, kind, key)
        if artifact is None:  # it was damaged, and has been put aside
            continue
        if artifact.digest != digest:
            say(
                f"{target}: another writer published a different result of the same inputs, options and code "
                f"({artifact.digest[:12]}, this one {digest[:12]}); the published one stays, and this one is dropped"
            )
        return artifact
    _remember(target, manifest)
    return Artifact.peek(target)


def sound(store: Path, kind: str, key: str) -> Artifact | None:
    """Return the verified generation of a key, or None if there is none. Put a damaged one aside.

    Raise UnreadableError if the system does not let it be read, as if a colleague's file has no read permission, and
    OtherVersionError for what another version of the program made.
    """
    folder = place.generation(store, kind, key)
    if not os.path.lexists(folder):
        return None
    try:
        artifact = Artifact.peek(folder)
        wrong = next(artifact.corrupt(), None)
    except (regular.UnreadableError, OtherVersionError):
        raise
    except GranularityError as error:
        wrong = str(error)
    if wrong is None:
        return artifact
    place.put_aside(folder, wrong)
    return None


def _remember(folder: Path, manifest: Values) -> None:
    hashing.remember(folder, {name: entry["sha256"] for name, entry in manifest["files"].items()})


def _write_manifest(
    writer: Writer, origin: Values, name: str, inputs: Inputs, params: Values, facts: Names, files: Names, since: Began
) -> dict[str, Any]:
    key = key_of(origin)
    target = place.generation(writer.store, origin["kind"], key).resolve()
    lineage = {
        role: {
            "path": os.path.relpath(source.folder, target),
            "name": str(source.path),
            "kind": source.kind,
            "digest": source.digest,
        }
        for role, source in {**inputs, **writer.parts}.items()
    }
    manifest = {
        **origin,
        "key": key,
        "name": name,
        "files": _describe_files(writer, origin["kind"], files),
        "inputs": lineage,
        "params": dict(params),
        "facts": list(facts),
        "summary": writer.summary,
        "command": [Path(sys.argv[0]).name.replace("__main__.py", "granularity"), *sys.argv[1:]],
        "all_packages": package_versions(),
        "hardware": hardware(),
        "cost": cost(since),
    }
    manifest["digest"] = content_digest(manifest)
    writer.text(MANIFEST, as_text(manifest))
    return manifest


def _refuse_other_lineage(inputs: Inputs) -> None:
    """Raise GranularityError if an input was made from other artifacts than those it is used with."""
    for source in inputs.values():
        if source.kind == "encoder":  # weights work for any images
            continue
        for role, entry in source.manifest["inputs"].items():
            if role in inputs and inputs[role].digest != entry["digest"]:
                raise GranularityError(
                    f"{source.path}: was made from a different '{role}' than {inputs[role].path}; delete "
                    f"{place.stamp_of(source.path)}, and snakemake recomputes it"
                )


def _describe_files(writer: Writer, kind: str, patterns: Names) -> dict[str, dict]:
    paths = {path.relative_to(writer.folder).as_posix(): path for path in writer.folder.rglob("*") if path.is_file()}
    hashes = {name: about["sha256"] for name, about in writer.described.items() if "sha256" in about}
    new = sorted(paths.keys() - hashes.keys())
    hashes |= dict(zip(new, hashing.digests([paths[name] for name in new]), strict=True))
    files = {}
    for name, path in sorted(paths.items()):
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            raise GranularityError(
                f"{name}: is not one of the files that stage '{kind}' declares: {', '.join(patterns)}"
            )
        files[name] = {"sha256": hashes[name], "bytes": path.stat().st_size, **writer.described.get(name, {})}
    return files


# ---------------------------------------------------------------- entries of a manifest: software, machine, cost


@functools.cache
def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that this project uses, if installed."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _cuda() -> Any:
    """Return torch.cuda if torch has used a GPU; do not import torch, which takes seconds."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_available() and cuda.is_initialized() else None


def hardware() -> dict[str, Any]:
    """Return the processor, number of cores and system, and the GPU if torch has used one."""
    about = Path("/proc/cpuinfo")  # not on macOS
    named = re.search(r"^model name\s*:(.*)", about.read_text() if about.exists() else "", re.MULTILINE)
    cpu = named[1].strip() if named else platform.processor() or platform.machine()
    found: dict[str, Any] = {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "system": platform.platform()}
    return found | ({"gpu": cuda.get_device_name()} if (cuda := _cuda()) else {})


def began() -> Began:
    return time.time(), time.monotonic(), _cpu()


def _cpu() -> float:
    """Return the CPU time of this process and of those that it has started and that have ended."""
    return sum(os.times()[:4])


def cost(since: Began) -> dict[str, Any]:
    """Return the cost of a job since it began: CPU time with its processes', and the memory of the largest of them.

    For GPUs, the peak memory of torch's tensors on any one.
    """
    started, clock, cpu = since
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes, or kilobytes
    largest = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    costs = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "wall_seconds": round(time.monotonic() - clock, 3),
        "cpu_seconds": round(_cpu() - cpu, 3),
        "peak_memory_mb": round(max(largest) / unit, 1),
    }
    if (cuda := _cuda()) is not None:
        peak = max(cuda.max_memory_allocated(index) for index in range(cuda.device_count()))
        costs["gpu_peak_memory_mb"] = round(peak / 2**20, 1)
    return costs
