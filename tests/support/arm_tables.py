"""Tables that a study of images reads, with the errors that one wants behind each arm."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd


def tables(
    errors: Mapping[tuple[str, int], float],
    condition: str = "train-all",
    source: str = "digits",
    runs: int = 3,
    backbones: int = 2,
    spread: float = 0.01,
    classes: int = 11,
    images: int = 500_000,
    pretrained_on: str | None = None,
    architecture: str = "net",
    one_pass: float = 6.0,
    epochs: int = 90,
    **columns: object,
) -> dict[str, pd.DataFrame]:
    """The tables of one network and way of finetuning.

    Args:
        errors: mean error of each arm, by family and number of classes; ("manual", `classes`) is the baseline.
        condition, source, classes, images: of the images that are finetuned on.
        runs: of each backbone; `spread` apart from one another.
        pretrained_on: the condition of the pretraining, if another one.
        one_pass: the error of the baseline's networks before they are finetuned.
        columns: of the finetunings, over those made here.
    """
    origin, network = pretrained_on or condition, columns.get("network", "net")
    rows = [
        {
            "condition": condition,
            "network": network,
            "transfer": "target",
            "parent": f"{origin} {network} {family} {size} {backbone}",
            "head_alone": False,
            "from_epoch": math.nan,
            "space": "target" if (family, size) == ("manual", classes) else f"{family}-{size}",
            "family": family,
            "granularity": size,
            "pretrain_seed": backbone,
            "val_error": mean + spread * (run - (runs - 1) / 2),
            **columns,
        }
        for (family, size), mean in errors.items()
        for backbone in range(backbones)
        for run in range(runs)
    ]
    pretrained = pd.DataFrame(
        [
            {
                "condition": origin,
                "run_id": row["parent"],
                "network": network,
                "architecture": architecture,
                "space": row["space"],
                "val_error": one_pass,
            }
            for row in rows
        ]
    )
    about = {"condition": condition, "source": source, "target": "kind", "classes": classes, "train_images": images}
    kept = pretrained[["condition", "run_id"]].drop_duplicates().assign(epoch=epochs)
    return {
        "samples": pd.DataFrame([about]),
        "finetune/runs.parquet": pd.DataFrame(rows),
        "pretrain/runs.parquet": pretrained,
        "pretrain/checkpoints.parquet": kept,
    }


def joined(*several: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of several, one after another; of each condition, pretraining and kept epoch one row."""
    found = {name: pd.concat([one[name] for one in several], ignore_index=True) for name in several[0]}
    return {name: table if name.startswith("finetune") else table.drop_duplicates() for name, table in found.items()}
