"""Looking at artifacts: `granularity inspect` and `granularity verify`."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.store import artifacts, generations
from granularity.store.artifacts import Artifact
from granularity.store.code import code_digest, packages

PREVIEW_ROWS = 5


def describe(path: Path) -> str:
    """Describe an artifact to a person; a folder of artifacts in one line per artifact."""
    if not _is_artifact(path):
        return "\n".join(_line(Artifact.peek(found)) for found in _found(path))
    artifact = Artifact.peek(path)
    manifest = artifact.manifest
    cost, code = manifest["cost"], manifest["code"]
    made_now = "" if is_current(artifact) else " (the code has changed since)"
    sections = [
        f"{artifact.path}",
        f"  lies in   {os.path.relpath(artifact.folder)}",
        f"  kind      {artifact.kind}",
        f"  digest    {artifact.digest}",
        f"  state     {'; '.join(artifact.corrupt()) or 'verified'}",
        f"  code      {' '.join(code['modules'])} {code['digest']}{made_now}",
        f"  made      {cost['started']}, {cost['wall_seconds']:.1f} s wall, {cost['cpu_seconds']:.1f} s CPU, "
        f"{cost['peak_memory_mb']:.0f} MB peak",
        f"  hardware  {', '.join(f'{key} {value}' for key, value in manifest['hardware'].items())}",
        f"  packages  {', '.join(f'{key} {value}' for key, value in manifest['packages'].items())}",
        f"  machine   {', '.join(f'{key} {value}' for key, value in manifest['machine'].items()) or 'any'}",
        *_adoption(manifest),
        f"  command   {shlex.join(manifest['command'])}",
        "files",
        *(f"  {name}  {_file_line(entry)}" for name, entry in manifest["files"].items()),
        "parameters",
        *_tree(artifact.params, "  "),
    ]
    if artifact.summary:
        sections += ["summary", *_tree(artifact.summary, "  ")]
    sections += ["lineage", *_lineage(artifact, "  ")]
    sections += [line for name in manifest["files"] for line in _preview(artifact, name)]
    return "\n".join(sections)


def as_json(path: Path) -> str:
    """Describe an artifact to a program: its manifest, problems and lineage; a folder as a list of these."""
    if not _is_artifact(path):
        return json.dumps([_as_dict(Artifact.peek(found)) for found in _found(path)], indent=2)
    return json.dumps(_as_dict(Artifact.peek(path)), indent=2)


def verify(root: Path) -> dict[str, Any]:
    """Hash every artifact at or below a folder anew, those that no name leads to any more included.

    Returns:
        `artifacts` and `bytes` checked; `problems` (corrupt or missing files, results in the place of others, stamps of
        other results, names that lead to none; one line each);
        `other_code`: names of sound artifacts that other code or other versions of packages made than are installed
        here (Snakemake would make them again); `unnamed`, how many no name leads to, without single runs.
    """
    named = artifacts.find(root)
    real = {os.path.realpath(path) for path in named}
    store = root / generations.STORE
    unnamed = [path for path in generations.all_of(store) if os.path.realpath(path) not in real]
    lost = artifacts.find_lost(root)
    if not named and not unnamed and not lost:
        raise GranularityError(f"{root}: there are no artifacts at or below this folder")
    problems = [f"{path}: leads to no result; delete {generations.stamp_of(path)}, and run snakemake" for path in lost]
    other_code, size, seen = [], 0, set()
    for path in (*named, *unnamed):
        try:
            artifact = Artifact.peek(path)
        except GranularityError as error:
            problems.append(str(error))
            continue
        stamp = generations.stamp_of(path)
        if path.is_symlink() and stamp.exists() and (wrong := artifact.unlike(stamp)):
            problems.append(wrong)
        if artifact.folder in seen:  # two names lead to it
            continue
        seen.add(artifact.folder)
        problems += artifact.corrupt(anew=True)
        size += artifact.size
        if path not in unnamed and not is_current(artifact):
            other_code.append(str(path))
    return {
        "artifacts": len(seen),
        "bytes": size,
        "problems": problems,
        "other_code": other_code,
        "unnamed": sum(path.parent.name not in artifacts.PARTS for path in unnamed),
    }


def describe_verification(result: dict[str, Any]) -> str:
    other = [f"{path}: sound, but made by other code or packages than are here now" for path in result["other_code"]]
    lines = [*result["problems"], *other]
    verdict = f"{len(result['problems'])} problems" if result["problems"] else "all sound"
    unnamed = f", {result['unnamed']} of them without a name" if result["unnamed"] else ""
    return "\n".join([*lines, f"{result['artifacts']} artifacts, {size_text(result['bytes'])}{unnamed}: {verdict}"])


def _is_artifact(path: Path) -> bool:
    return (generations.folder_of(path) / generations.MANIFEST).exists()


def _found(path: Path) -> list[Path]:
    found = artifacts.find(path)
    if not found:
        raise GranularityError(f"{path}: there are no artifacts at or below this folder")
    return found


def is_current(artifact: Artifact) -> bool:
    """Whether the code and the packages that made an artifact are those that are installed here."""
    code = artifact.manifest["code"]
    own = set(extensions.own_files())
    # Of files of the user's only those that the configuration names are read: a manifest may name anything.
    if any(name.endswith(".py") and name not in own for name in code["modules"]):
        return not own
    try:
        same = code_digest(*code["modules"]) == code["digest"]
        return same and packages(*code["modules"]) == artifact.manifest["packages"]
    except FileNotFoundError:  # the module has been renamed
        return False


def _line(artifact: Artifact) -> str:
    wall = artifact.manifest["cost"]["wall_seconds"]
    return f"{artifact.path}  {artifact.kind}  {artifact.digest[:12]}  {size_text(artifact.size)}  {wall:.1f} s"


def _as_dict(artifact: Artifact) -> dict[str, Any]:
    lineage = {role: str(source.folder) for role, source in artifact.lineage().items()}
    own = {
        "path": str(artifact.path),
        "folder": str(artifact.folder),
        "problems": list(artifact.corrupt()),
        "lineage": lineage,
    }
    return {**own, **artifact.manifest}


def _adoption(manifest: dict[str, Any]) -> list[str]:
    """On what evidence a result of other code was accepted, by whom and when; nothing where it was not."""
    found = manifest.get("adopted")
    if not found:
        return []
    return [f"  adopted   by {found['by']}, {found['at']}: {found['evidence']['key']} was made again and is equal"]


def _file_line(entry: dict[str, Any]) -> str:
    parts = [size_text(entry["bytes"])]
    if "shape" in entry:
        parts.append(f"{entry['dtype']} {entry['shape']}")
    if "rows" in entry:
        columns = ", ".join(f"{name} {kind}" for name, kind in entry["columns"].items())
        parts.append(f"{entry['rows']} rows: {columns}")
    if "parameters" in entry:
        parts.append(f"{entry['tensors']} tensors, {entry['parameters']:,} numbers")
    return "; ".join([*parts, f"sha256 {entry['sha256'][:12]}"])


def size_text(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _tree(value: Any, indent: str) -> list[str]:
    lines = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{indent}{key}", *_tree(item, indent + "  ")]
        else:
            text = json.dumps(item, ensure_ascii=False) if not isinstance(item, str) else item
            lines.append(f"{indent}{key} = {text if len(text) <= 200 else text[:197] + '...'}")
    return lines


def _lineage(artifact: Artifact, indent: str) -> list[str]:
    lines = []
    found = artifact.lineage()
    parts = [entry for entry in artifact.manifest["inputs"].values() if entry["kind"] in artifacts.PARTS]
    if parts:
        lines.append(f"{indent}holds {len(parts)} single runs (kind {parts[0]['kind']})")
    for role, entry in artifact.manifest["inputs"].items():
        if entry["kind"] in artifacts.PARTS:
            continue
        state = "" if role in found else " (no longer there)"
        lines.append(f"{indent}{role} <- {entry['name']} ({entry['kind']} {entry['digest'][:12]}){state}")
        lines += _lineage(found[role], indent + "  ") if role in found else []
    if not artifact.manifest["inputs"]:
        source = artifact.params.get("root") or artifact.params.get("source")
        lines.append(f"{indent}raw images: {source}")
    return lines


def _preview(artifact: Artifact, name: str) -> list[str]:
    if name.endswith(".parquet") and "rows" in artifact.manifest["files"][name]:
        import pandas as pd

        frame = artifact.table(name)
        with pd.option_context("display.width", 160, "display.max_columns", 12, "display.max_colwidth", 28):
            return [f"{name}, first {min(PREVIEW_ROWS, len(frame))} of {len(frame)} rows", frame.head().to_string()]
    if name.endswith(".npy"):
        array = artifact.array(name)
        with_ends = ", ".join(f"{value:.4g}" for value in array.reshape(-1)[:8].tolist())
        return [f"{name}, first values", f"  {with_ends}, ..."]
    if name.endswith(".json") and artifact.manifest["files"][name]["bytes"] < 4000:
        return [name, json.dumps(artifact.json(name), indent=2, ensure_ascii=False)]
    return []
