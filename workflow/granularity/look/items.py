"""Text about one item: an artifact, a file of one, or a run by its id or name (`granularity inspect`)."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.strict_json import read_safetensors_header
from granularity.learning.runs import Run
from granularity.look import inspection
from granularity.look.text import as_csv, frame_text, megabytes, seconds
from granularity.store import place
from granularity.store.artifact import Artifact, readable

TOLD = ("network", "transfer", "granularity", "train_loss", "target", "val_error")  # shown of a run
WIDEST = 8  # most columns of an array that are shown


def inspect(what: str, results: Path, rows: int | None, width: int | None, csv: bool = False) -> str:
    """Describe an item as text, or a table as CSV; GranularityError if there is no such item."""
    path = Path(what)
    if inspection.is_artifact(path) or path.is_dir():
        if csv:
            raise GranularityError(f"{path}: --csv is for one table: name one of its files, such as {path}/x.parquet")
        return inspection.describe(path, rows, width)
    if (folder := next(filter(inspection.is_artifact, path.parents), None)) is not None:
        return _file(Artifact.open(folder), path.relative_to(folder).as_posix(), rows, width, csv)
    if path.exists():
        raise GranularityError(
            f"{path}: is not a file of an artifact (there is no {place.MANIFEST} beside or above it)"
        )
    return _run(what, results, rows, width, csv)


def _file(artifact: Artifact, name: str, rows: int | None, width: int | None, csv: bool) -> str:
    path, files = artifact.path / name, artifact.manifest["files"]
    artifact.file(name)
    table = _table(artifact, name)
    if csv:
        if table is None:
            raise GranularityError(f"{path}: is not a table, so --csv cannot show it")
        return as_csv(table.head(rows))
    value = artifact.json(name) if name.endswith(".json") else None
    lines = [str(path), f"  of        {artifact.kind} {artifact.digest[:12]}, verified"]
    lines.append(f"  contents  {inspection.file_line(files[name])}")
    if table is None:
        return "\n".join([*lines, *([] if value is None else [json.dumps(value, indent=2, ensure_ascii=False)])])
    if name.endswith(".npy") and table.shape[1] > WIDEST:
        lines.append(f"  shown     the first {WIDEST} of {table.shape[1]} numbers of each row")
    head = table.head(inspection.FEW if rows is None else rows)
    lines += [frame_text(head.iloc[:, :WIDEST] if name.endswith(".npy") else head, width)] if len(head) else []
    return "\n".join([*lines, f"{len(head)} of {len(table)} rows" + "; --rows N for more" * (len(head) < len(table))])


def _table(artifact: Artifact, name: str) -> pd.DataFrame | None:
    """Return a file as a table, or None if it is not one."""
    if name.endswith(".parquet"):
        return artifact.table(name)
    if name.endswith(".csv"):
        with readable(artifact.path / name, "a CSV table"):
            return pd.read_csv(artifact.folder / name, dtype="str", keep_default_na=False)
    if name.endswith(".npy"):
        values = artifact.array(name)
        return pd.DataFrame(values.reshape(len(values) if values.ndim else 1, -1), copy=False)
    if name.endswith(".safetensors"):
        head = read_safetensors_header(artifact.folder / name)
        tensors = [(key, tensor["dtype"], tensor["shape"]) for key, tensor in head.items() if key != "__metadata__"]
        return pd.DataFrame(tensors, columns=["tensor", "dtype", "shape"])
    return None


# ---------------------------------------------------------------- runs


def trained(root: Path, *kinds: str) -> Iterator[tuple[Artifact, list[Run]]]:
    """Yield results of some stages at or below a folder with the runs asked of each; skip unreadable ones."""
    for name in place.find(root):
        with contextlib.suppress(GranularityError):
            artifact = Artifact.peek(name)
            if artifact.kind in kinds:
                yield artifact, [Run.parse(run) for run in artifact.manifest["options"]["runs"]]


def _run(what: str, root: Path, rows: int | None, width: int | None, csv: bool) -> str:
    results = list(trained(root, "pretrain", "finetune", "measure")) if root.exists() else []
    names = {run.id: run.name for entry, runs in results for run in runs}
    requested = next((Run.parse(name) for pair in names.items() if what in pair for name in pair[1:]), None)
    if requested is None:
        raise GranularityError(f"{what}: there is no such file, folder, or run in {root} (--results)")
    seeds = requested.space, requested.pretrain_seed
    alike = [entry for entry, runs in results if seeds in {(run.space, run.pretrain_seed) for run in runs}]
    tables = [(entry, Artifact.open(entry.path).table("runs.parquet")) for entry in alike if entry.kind != "measure"]
    parents = [table.loc[table["run_id"] == requested.id, "parent"] for _, table in tables if "parent" in table]
    backbones = {requested.id}.union(*parents)
    trainings = []
    for entry, table in sorted(tables, key=lambda pair: pair[0].kind != "pretrain"):
        of_it = table["run_id"].isin(backbones if entry.kind == "pretrain" else [requested.id])
        of_it |= table["parent"].eq(requested.id) if "parent" in table else False
        trainings += [_training(entry, row, names) for row in table[of_it].to_dict("records")]
    values = [Artifact.open(entry.path).table("values.parquet") for entry in alike if entry.kind == "measure"]
    ids = {entry["run_id"] for entry in trainings}
    measured = [table for table in (table[table["run"].isin(ids)] for table in values) if len(table)]
    if csv:
        return as_csv(pd.DataFrame(trainings))
    lines = [line for entry in trainings for line in _told(entry)]
    for table in measured:
        head = table.head(inspection.FEW if rows is None else rows)
        lines += [f"measured, {len(head)} of {len(table)} numbers", frame_text(head, width, index=False)]
    return "\n".join(lines)


def _training(artifact: Artifact, row: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return a row of `runs.parquet` with its artifact, and the cost of that run only."""
    entry, cost = artifact.manifest["inputs"].get(f"run {row['run_id']}"), {}
    with contextlib.suppress(GranularityError):
        cost = Artifact.peek(artifact.folder / entry["path"]).manifest["cost"] if entry else {}
    known = {key: None if value != value else value for key, value in row.items()}
    known |= {key: cost.get(key) for key in ("wall_seconds", "cpu_seconds", "peak_memory_mb")}
    known["target"] = artifact.params.get("target")  # what the error is of: a transfer to other data may have its own
    return {"kind": artifact.kind, "name": names[row["run_id"]], **known, "artifact": str(artifact.path)}


def _told(one: dict[str, Any]) -> list[str]:
    """Return lines that describe a training."""
    about = {"in": f"{one['artifact']}, verified"} | {key: one[key] for key in TOLD if one.get(key) is not None}
    about["cost"] = f"{seconds(one['wall_seconds'])} wall, {megabytes(one['peak_memory_mb'])} peak"
    texts = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in about.items()}
    return [f"{one['kind']}  {one['name']}", *(f"  {key:12}  {text}" for key, text in texts.items())]
