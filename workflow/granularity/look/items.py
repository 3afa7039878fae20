"""Looking at one thing: an artifact, a file of one, or a run by its id or name (`granularity inspect`)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base.errors import GranularityError
from granularity.base.strict_json import read_safetensors_header
from granularity.learning.runs import Run
from granularity.look import inspection
from granularity.look.text import as_csv, frame_text, megabytes, seconds
from granularity.store import place
from granularity.store.artifact import Artifact, readable

if TYPE_CHECKING:
    import pandas as pd

TOLD = ("network", "transfer", "granularity", "train_loss", "val_error")  # of a run
WIDEST = 8  # columns of an array that are shown


def inspect(what: str, results: Path, rows: int | None, width: int | None, form: str = "text") -> str:
    """Describe something to a person, or as `json` or `csv`; a GranularityError where there is no such thing."""
    path = Path(what)
    if inspection.is_artifact(path) or path.is_dir():
        if form == "csv":
            raise GranularityError(f"{path}: --csv is for one table: name one of its files, such as {path}/x.parquet")
        return inspection.as_json(path) if form == "json" else inspection.describe(path, rows, width)
    if (found := _in_artifact(path)) is not None:
        return _file(*found, rows, width, form)
    return _run(what, results, rows, width, form)


# ---------------------------------------------------------------- files


def _in_artifact(path: Path) -> tuple[Artifact, str] | None:
    """The artifact that a path leads into, verified, and the name of the file in it."""
    for folder in path.parents:
        if inspection.is_artifact(folder):
            artifact, name = Artifact.open(folder), path.relative_to(folder).as_posix()
            if name not in artifact.manifest["files"]:
                names = ", ".join(artifact.manifest["files"])
                raise GranularityError(f"{path}: is no file of {folder}; it has {names}")
            return artifact, name
    if path.exists():
        raise GranularityError(f"{path}: is no file of an artifact (there is no {place.MANIFEST} beside it or above)")
    return None


def _file(artifact: Artifact, name: str, rows: int | None, width: int | None, form: str) -> str:
    entry, (table, count) = artifact.manifest["files"][name], _table(artifact, name, rows)
    if form == "csv":
        if table is None:
            raise GranularityError(f"{artifact.path / name}: is no table, and cannot be shown as one (--csv)")
        return as_csv(table if rows is None else table.head(rows))
    value = artifact.json(name) if name.endswith(".json") else None
    if form == "json":
        held = {"value": value} if table is None else {"rows": json.loads(table.head(rows).to_json(orient="records"))}
        return json.dumps({"file": str(artifact.path / name), "kind": artifact.kind, **entry, **held}, indent=2)
    lines = [str(artifact.path / name), f"  of        {artifact.kind} {artifact.digest[:12]}, verified"]
    lines.append(f"  holds     {inspection.file_line(entry)}")
    if table is None:
        return "\n".join([*lines, *([] if value is None else [json.dumps(value, indent=2, ensure_ascii=False)])])
    if name.endswith(".npy") and table.shape[1] > WIDEST:
        lines.append(f"  shown     the first {WIDEST} of {table.shape[1]} numbers of each row")
        table = table.iloc[:, :WIDEST]
    shown = table.head(inspection.FEW if rows is None else rows)
    lines += [frame_text(shown, width)] if len(shown) else []
    return "\n".join([*lines, f"{len(shown)} of {count} rows" + ("" if len(shown) == count else "; --rows N for more")])


def _table(artifact: Artifact, name: str, rows: int | None) -> tuple[pd.DataFrame | None, int]:
    """A file as a table, and how many rows it has; None where it is none."""
    import pandas as pd

    if name.endswith(".npy"):
        values = artifact.array(name)
        values = values.reshape(len(values) if values.ndim else 1, -1)
        return pd.DataFrame(values[:rows]), len(values)
    table = None
    if name.endswith(".parquet"):
        table = artifact.table(name)
    elif name.endswith(".csv"):
        with readable(artifact.path / name, "a CSV table"):
            table = pd.read_csv(artifact.folder / name, dtype="str", keep_default_na=False)
    elif name.endswith(".safetensors"):
        head = read_safetensors_header(artifact.folder / name)
        tensors = {key: one for key, one in head.items() if key != "__metadata__"}
        shapes = [" x ".join(map(str, one["shape"])) for one in tensors.values()]
        kinds = [one["dtype"] for one in tensors.values()]
        table = pd.DataFrame({"tensor": list(tensors), "dtype": kinds, "shape": shapes})
    return table, 0 if table is None else len(table)


# ---------------------------------------------------------------- runs


def trained(root: Path, *kinds: str) -> Iterator[tuple[Artifact, list[Run]]]:
    """Results of some stages at or below a folder, and the runs that each was asked for; unreadable ones left out."""
    for name in place.find(root):
        with contextlib.suppress(GranularityError):
            artifact = Artifact.peek(name)
            if artifact.kind in kinds:
                yield artifact, [Run.parse(run) for run in artifact.manifest["options"]["runs"]]


def _run(what: str, root: Path, rows: int | None, width: int | None, form: str) -> str:
    held = list(trained(root, "pretrain", "finetune", "measure")) if root.exists() else []
    by_id = {run.id: run for one, runs in held for run in runs if one.kind != "measure"}
    asked = next((run for run in by_id.values() if what in (run.id, run.name)), None)
    if asked is None:
        raise GranularityError(f"{what}: there is no such file or folder, and no such run in {root} (--results)")
    found, ids = [], {asked.id}
    alike = [(one, runs) for one, runs in held if any(_alike(run, asked) for run in runs)]
    for one, _ in (pair for pair in alike if pair[0].kind == "finetune"):
        table = Artifact.open(one.path).table("runs.parquet")
        ids |= set(table.loc[table["run_id"] == asked.id, "parent"])
        of_it = table["run_id"].eq(asked.id) | table["parent"].eq(asked.id)
        found += [(one, row) for row in table[of_it].to_dict("records")]
    for one, _ in (pair for pair in alike if pair[0].kind == "pretrain"):
        table = Artifact.open(one.path).table("runs.parquet")
        found[:0] = [(one, row) for row in table[table["run_id"].isin(ids)].to_dict("records")]
    trainings = [_training(one, row, by_id) for one, row in found]
    measured = _measured([one for one, _ in alike if one.kind == "measure"], {one["run_id"] for one in trainings})
    if form == "csv":
        import pandas as pd

        return as_csv(pd.DataFrame(trainings))
    if form == "json":
        values = [] if measured is None else json.loads(measured.to_json(orient="records"))
        return json.dumps({"run": asked.name, "trainings": trainings, "measured": values}, indent=2)
    lines = [line for one in trainings for line in _told(one)]
    if measured is not None:
        shown = measured.head(inspection.FEW if rows is None else rows)
        lines += [f"measured, {len(shown)} of {len(measured)} numbers", frame_text(shown, width, index=False)]
    return "\n".join(lines)


def _told(one: dict[str, Any]) -> list[str]:
    """What is said of a training."""
    about = {"in": f"{one['artifact']}, verified"} | {key: one[key] for key in TOLD if one.get(key) is not None}
    if one["wall_seconds"] is not None:
        about["cost"] = f"{seconds(one['wall_seconds'])} wall, {megabytes(one['peak_memory_mb'])} peak"
    texts = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in about.items()}
    return [f"{one['kind']}  {one['name']}", *(f"  {key:12}  {text}" for key, text in texts.items())]


def _alike(run: Run, asked: Run) -> bool:
    return (run.space, run.pretrain_seed) == (asked.space, asked.pretrain_seed)


def _training(artifact: Artifact, row: dict[str, Any], by_id: dict[str, Run]) -> dict[str, Any]:
    """What a row of `runs.parquet` says, with its artifact, and the cost of the run alone."""
    import pandas as pd

    cost: dict[str, Any] = {}
    entry = artifact.manifest["inputs"].get(f"run {row['run_id']}")
    with contextlib.suppress(GranularityError):
        cost = Artifact.peek(artifact.folder / entry["path"]).manifest["cost"] if entry else {}
    known = {key: None if pd.isna(value) else value for key, value in row.items()}
    known |= {key: cost.get(key) for key in ("wall_seconds", "cpu_seconds", "peak_memory_mb")}
    return {"kind": artifact.kind, "name": by_id[row["run_id"]].name, **known, "artifact": str(artifact.path)}


def _measured(artifacts: list[Artifact], ids: set[str]) -> pd.DataFrame | None:
    import pandas as pd

    tables = [Artifact.open(one.path).table("values.parquet") for one in artifacts]
    tables = [table[table["run"].isin(ids)] for table in tables]
    return pd.concat(tables, ignore_index=True) if any(map(len, tables)) else None
