"""Text about artifacts: what `granularity inspect`, `granularity verify` and `granularity gc` print."""

import contextlib
import itertools
import json
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.look.text import fitted, frame_text, megabytes, seconds, size_text
from granularity.stages import report
from granularity.store import place
from granularity.store.artifact import PARTS, Artifact
from granularity.store.code import code_digest, packages
from granularity.store.place import Found

PREVIEW_ROWS, FEW = 5, 30  # rows shown of a table; a table of at most `FEW` rows is shown whole
NONE = "there are no artifacts at or below this folder"


def describe(path: Path, rows: int | None = None, width: int | None = None, closely: bool = True) -> str:
    """Describe an artifact for people (`closely`: hashed anew, with first rows); a folder of them in a line each."""
    if not is_artifact(path):
        line = "{0.kind:10}  {1:>7}  {0.manifest[cost][wall_seconds]:6.1f} s  {0.digest:.12}  {0.path}"
        return "\n".join(fitted(line.format(result, size_text(result.size)) for result in _below(path)))
    artifact = Artifact.peek(path)
    manifest = artifact.manifest
    cost, code = manifest["cost"], manifest["code"]
    made_now = "" if is_current(artifact) else " (the code has changed since)"
    about = {
        "folder": os.path.relpath(artifact.folder),
        "kind": artifact.kind,
        "digest": artifact.digest,
        "state": "; ".join(artifact.problems(records=closely)) or "verified",
        "code": f"{' '.join(code['modules'])} {code['digest']}{made_now}",
        "made": f"{cost['started']}, {seconds(cost['wall_seconds'])} wall, {seconds(cost['cpu_seconds'])} CPU, "
        f"{megabytes(cost['peak_memory_mb'])} peak",
    }
    for key in ("hardware", "packages", "machine"):
        about[key] = ", ".join(f"{name} {value}" for name, value in manifest[key].items()) or "any"
    if record := manifest.get("adopted"):  # a result of other code, accepted on this evidence
        about["adopted"] = f"by {record['by']}, {record['at']}: {record['evidence']['key']} was recomputed and is equal"
    head = [f"{artifact.path}", *(f"  {key:8}  {value}" for key, value in about.items()), "  command"]
    head = [*fitted(head), *(f"    {words}" for words in _command(manifest["command"]))]
    lines = ["files", *(f"  {name}  {file_line(entry)}" for name, entry in manifest["files"].items())]
    lines += ["parameters", *_tree(artifact.params, "  ")]
    lines += ["summary", *_tree(artifact.summary, "  ")] if artifact.summary else []
    lines += ["lineage", *_lineage(artifact, "  ")]
    names = manifest["files"] if closely else ()
    previews = [line for name in names for line in _preview(artifact, name, rows, width)]
    return "\n".join([*head, *fitted(lines), *previews])


def _command(words: list[str]) -> list[str]:
    """Return a command as shell lines, one for each option."""
    first = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
    starts = [0, *(place for place in range(first, len(words)) if words[place].startswith("--")), len(words)]
    parts = [shlex.join(words[start:end]) for start, end in itertools.pairwise(starts)]
    return [f"{part} \\" for part in parts[:-1]] + parts[-1:]


def verify(root: Path) -> dict[str, Any]:
    """Hash every artifact at or below a folder anew, including those that no name leads to.

    Return `artifacts` and `bytes` checked; `problems`, one line each; `other_code`, names of artifacts made by other
    code or packages than those here; `unnamed`, how many no name leads to, not counting single runs.
    """
    named = place.find(root)
    real = {os.path.realpath(path) for path in named}
    unnamed = [path for path in place.all_of(root / place.STORE) if os.path.realpath(path) not in real]
    lost = place.find_lost(root)
    if not named and not unnamed and not lost:
        raise GranularityError(f"{root}: {NONE}")
    problems = [f"{path}: leads to no result; delete {place.stamp_of(path)}, and run snakemake" for path in lost]
    other_code, size, seen = [], 0, set()
    for path in (*named, *unnamed):
        try:
            artifact = Artifact.peek(path)
        except GranularityError as error:
            problems.append(str(error))
            continue
        stamp = place.stamp_of(path)
        if path.is_symlink() and stamp.exists() and (wrong := artifact.unlike(stamp)):
            problems.append(wrong)
        if artifact.folder in seen:  # a second name of it
            continue
        seen.add(artifact.folder)
        problems += artifact.problems(anew=True)
        size += artifact.size
        if path not in unnamed and not is_current(artifact):
            other_code.append(str(path))
    bare = sum(path.parent.name not in PARTS for path in unnamed)
    return {"artifacts": len(seen), "bytes": size, "problems": problems, "other_code": other_code, "unnamed": bare}


def describe_verification(result: dict[str, Any]) -> str:
    other = [f"{path}: sound, but made by other code or packages than the present" for path in result["other_code"]]
    verdict = f"{len(result['problems'])} problems" if result["problems"] else "all sound"
    unnamed = f", {result['unnamed']} of them no longer used (see granularity gc)" if result["unnamed"] else ""
    last = f"{result['artifacts']} artifacts, {size_text(result['bytes'])}{unnamed}: {verdict}"
    return "\n".join([*result["problems"], *other, last])


def describe_leftovers(found: list[Found], younger: list[Found], delete: bool) -> str:
    """Return a line per folder that could be or was deleted, largest first; the total; and what is too young."""
    lines = [f"{size_text(one.size):>8}  {one.path}  {one.why}" for one in found]
    total = size_text(sum(one.size for one in found))
    done = f"{len(found)} deleted, {total} freed" if delete else f"{len(found)} can be deleted, {total}: add --delete"
    later = f"{len(younger)} younger, {size_text(sum(one.size for one in younger))}: listed by --older-than 0"
    return "\n".join([*lines, done if found else "nothing to delete", *([later] if younger else [])])


def is_current(artifact: Artifact) -> bool:
    """Return whether the code and packages that made an artifact are the ones installed here."""
    code = artifact.manifest["code"]
    own = set(extensions.own_files())
    # Read only those of the user's files that the configuration names: a manifest may name any file.
    if any(name.endswith(".py") and name not in own for name in code["modules"]):
        return not own
    with contextlib.suppress(FileNotFoundError):  # the module has been renamed
        same = code_digest(*code["modules"]) == code["digest"]
        return same and packages(*code["modules"]) == artifact.manifest["packages"]
    return False


class _Page(NamedTuple):
    """A report, or the page of a study: what it was made from, the folders beside it that hold this, and its time."""

    kind: str
    used: set[Path]
    beside: set[str]
    made: float


def left_over(names: Iterable[Path], root: Path) -> list[Path]:
    """Return those of the results below a folder that are left from earlier settings, so that their numbers must not be
    mixed with the present ones.

    A report does not use them, or the page of a study nothing of their cell, and they are no newer than it. Of a report
    and the page of a study of one name the newer one counts. A cell that `root` lies in is asked for itself.
    """
    pages: dict[Path, _Page | None] = {}
    return [name for name in names if _is_left_over(Path(os.path.abspath(name)), Path(os.path.abspath(root)), pages)]


def _is_left_over(name: Path, root: Path, pages: dict[Path, _Page | None]) -> bool:
    try:
        if Artifact.peek(name).kind not in report.READS:
            return False
        made = place.stamp_of(name).stat().st_mtime
        for above in name.parents:
            page = pages[above] if above in pages else pages.setdefault(above, _page(above))
            if page is None or made > page.made:
                continue
            if name.relative_to(above).parts[0] in page.beside:
                unused = page.kind == "report" and name not in page.used
            else:
                unused = above.is_relative_to(root)
            if unused:
                return True
    except (GranularityError, OSError, TypeError, ValueError):  # damaged, or without a stamp: there is no telling
        pass
    return False


def _page(folder: Path) -> _Page | None:
    """Return the newer one of the report and the page of a study in a folder, if there is any."""
    there = [folder / kind for kind in ("report", "gather") if is_artifact(folder / kind)]
    if not there:
        return None
    made, newest = max((place.stamp_of(page).stat().st_mtime, page) for page in there)
    made_from = Artifact.peek(newest).manifest["made_from"]
    used = {folder / source for sources in made_from.values() for source, _ in sources}
    beside = {one.relative_to(folder).parts[0] for one in used}
    return _Page(newest.name, used, beside, made) if used else None


def is_artifact(path: Path) -> bool:
    return (place.folder_of(path) / place.MANIFEST).exists()


def _below(path: Path) -> list[Artifact]:
    if found := [Artifact.peek(name) for name in place.find(path)]:
        return found
    raise GranularityError(f"{path}: {NONE}")


def file_line(entry: dict[str, Any]) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in entry.get("columns", {}).items())
    kinds = {"shape": "{dtype} {shape}", "rows": "{rows} rows: {names}"}
    kinds |= {"parameters": "{tensors} tensors, {parameters:,} numbers"}
    parts = [words.format(names=columns, **entry) for key, words in kinds.items() if key in entry]
    return "; ".join([size_text(entry["bytes"]), *parts, f"sha256 {entry['sha256'][:12]}"])


def _tree(value: Any, indent: str) -> list[str]:
    lines = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{indent}{key}", *_tree(item, indent + "  ")]
            continue
        text = json.dumps(item, ensure_ascii=False) if not isinstance(item, str) else item
        lines.append(f"{indent}{key} = {text if len(text) <= 200 else text[:197] + '...'}")
    return lines


def _lineage(artifact: Artifact, indent: str) -> list[str]:
    found, inputs, lines = artifact.lineage(), artifact.manifest["inputs"], []
    if runs := [entry["kind"] for entry in inputs.values() if entry["kind"] in PARTS]:
        lines.append(f"{indent}contains {len(runs)} single runs (kind {runs[0]})")
    for role, entry in ((role, entry) for role, entry in inputs.items() if entry["kind"] not in PARTS):
        state = "" if role in found else " (no longer there)"
        lines.append(f"{indent}{role} <- {entry['name']} ({entry['kind']} {entry['digest'][:12]}){state}")
        lines += _lineage(found[role], indent + "  ") if role in found else []
    if not inputs:
        lines.append(f"{indent}raw images: {artifact.params.get('root') or artifact.params.get('source')}")
    return lines


def _preview(artifact: Artifact, name: str, rows: int | None, width: int | None) -> list[str]:
    entry = artifact.manifest["files"][name]
    if name.endswith(".parquet") and "rows" in entry:
        frame = artifact.table(name)
        head = frame.head((len(frame) if len(frame) <= FEW else PREVIEW_ROWS) if rows is None else rows)
        return [f"{name}, first {len(head)} of {len(frame)} rows", *([frame_text(head, width)] if len(head) else [])]
    if name.endswith(".npy"):
        values = artifact.array(name).reshape(-1)[:8].tolist()
        return [f"{name}, first values", f"  {', '.join(f'{value:.4g}' for value in values)}, ..."]
    if name.endswith(".json") and entry["bytes"] < 4000:
        return [name, *json.dumps(artifact.json(name), indent=2, ensure_ascii=False).split("\n")]
    return []
