"""Tables that a study of images reads, with the errors that one wants behind each arm."""

import math
import zlib
from collections.abc import Mapping

import numpy as np
import pandas as pd


def tables(
    errors: Mapping[tuple[str, int], float],
    condition: str = "train-all",
    source: str = "digits",
    runs: int = 2,
    backbones: int = 6,
    spread: float = 0.01,
    classes: int = 11,
    images: int = 500_000,
    pretrained_on: str | None = None,
    architecture: str = "net",
    one_pass: float = 6.0,
    epochs: int = 90,
    **columns: object,
) -> dict[str, pd.DataFrame]:
    """The tables of one network and way of finetuning; `columns` of the finetunings go over those made here.

    `errors` are means of arms, by family and number of classes; ("manual", `classes`) is the baseline. The `runs` of a
    backbone lie 0.1 apart, an arm's backbones have a standard deviation of `spread`, and all networks an error of
    `one_pass` before they are finetuned.
    """
    origin, network = pretrained_on or condition, columns.get("network", "net")

    def noise(*names: object) -> np.ndarray:
        """One deviation per backbone, of its own for every arm: of mean 0, and of `spread` exactly."""
        drawn = np.random.default_rng(zlib.crc32(repr(names).encode())).standard_normal(backbones)
        drawn -= drawn.mean()
        return spread * drawn / (drawn.std(ddof=1) if backbones > 1 else 1.0)

    rows = pd.DataFrame(
        [
            {
                "family": family,
                "granularity": size,
                "space": "target" if (family, size) == ("manual", classes) else f"{family}-{size}",
                "pretrain_seed": backbone,
                "parent": f"{origin} {network} {family} {size} {backbone}",
                "val_error": mean + 0.1 * (run - (runs - 1) / 2) + off,
            }
            for (family, size), mean in errors.items()
            for backbone, off in enumerate(noise(family, size, columns.get("transfer"), columns.get("from_epoch")))
            for run in range(runs)
        ]
    )
    common = {"condition": condition, "network": network, "transfer": "target", "head_alone": False}
    common |= {"from_epoch": math.nan, **columns}
    before = one_pass + noise("one pass")[rows["pretrain_seed"]]
    pretrained = rows[["space", "pretrain_seed"]].assign(condition=origin, run_id=rows["parent"], network=network)
    pretrained = pretrained.assign(architecture=architecture, val_error=before)
    about = {"condition": condition, "source": source, "target": "kind", "classes": classes, "train_images": images}
    kept = pretrained[["condition", "run_id"]].drop_duplicates().assign(epoch=epochs)
    return {
        "samples": pd.DataFrame([about]),
        "finetune/runs.parquet": rows.assign(**common),
        "pretrain/runs.parquet": pretrained,
        "pretrain/checkpoints.parquet": kept,
    }


def joined(*several: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of several, one after another; of each condition, pretraining and kept epoch one row."""
    found = {name: pd.concat([one[name] for one in several], ignore_index=True) for name in several[0]}
    return {name: table if name.startswith("finetune") else table.drop_duplicates() for name, table in found.items()}
