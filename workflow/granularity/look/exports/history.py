"""Training histories by epoch: a table, or TensorBoard's files."""

from pathlib import Path

import pandas as pd

from granularity.base.errors import GranularityError
from granularity.look.api import of_kinds
from granularity.look.exports import whole
from granularity.store.place import inside

PLACE = ["condition", "stage", "network", "transfer"]
ABOUT = [*PLACE, "run", "space", "pretrain_seed", "finetune_seed"]


def export(results: Path, to: Path, form: str = "csv") -> None:
    """Write the histories of all trainings into a new folder: `history.csv`, or a folder of event files per run."""
    tables = []
    for condition, one in of_kinds(results, "pretrain", "finetune"):
        runs = one.table("runs.parquet").assign(condition=condition, stage=one.kind)
        history = one.table("history.parquet").rename(columns={"run_id": "run"})
        tables.append(runs.rename(columns={"run_id": "run"}).reindex(columns=ABOUT).merge(history, on="run"))
    table = pd.concat(tables, ignore_index=True).astype({"pretrain_seed": "Int64", "finetune_seed": "Int64"})
    with whole(to) as folder:
        folder.mkdir()
        table.to_csv(folder / "history.csv", index=False) if form == "csv" else _events(table, folder)


def _events(table: pd.DataFrame, folder: Path) -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise GranularityError("--format tensorboard: install the package tensorboard, or use --format csv") from None
    for where, rows in table.groupby([*PLACE, "space", "run"], sort=False, dropna=False):
        *parts, space, run = (str(part) for part in where if part != "." and not pd.isna(part))
        with SummaryWriter(str(inside(folder, "/".join([*parts, f"{space}-{run}"]), "runs.parquet"))) as writer:
            for name in table.columns.difference([*ABOUT, "epoch"]):
                for epoch, value in zip(rows["epoch"], rows[name], strict=True):
                    writer.add_scalar(name, value, epoch)
