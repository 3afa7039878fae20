"""Finding and loading the networks that pretraining left."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.config.options import Model
from granularity.learning.network import build
from granularity.machine.first_process import verified
from granularity.store.artifacts import readable

COLUMNS = dict.fromkeys(["run_id", "space", "family", "backbone"], "text")
COLUMNS |= dict.fromkeys(["granularity", "pretrain_seed"], "whole")


class Backbones:
    """The pretrained networks of some jobs. `inputs` are their artifacts, by a role that names the job."""

    def __init__(self, pretrained: list[Path]):
        sources = [verified(path, "pretrain") for path in pretrained]
        self.inputs = {f"pretrain/{source.path.name}": source for source in sources}
        tables = [source.table("runs.parquet", COLUMNS).assign(source=i) for i, source in enumerate(sources)]
        self.runs = pd.concat(tables, ignore_index=True)
        self._sources = sources

    def find(self, space: str, pretrain_seed: int) -> pd.Series:
        """The row of one pretraining."""
        found = self.runs[(self.runs["space"] == space) & (self.runs["pretrain_seed"] == pretrain_seed)]
        if len(found) != 1:
            where = ", ".join(str(source.path) for source in self._sources)
            raise GranularityError(f"{len(found)} pretrainings on '{space}' with seed {pretrain_seed} in {where}")
        return found.iloc[0]

    def load(self, row: pd.Series, channels: int) -> torch.nn.Module:
        """The network of a row, with its pretraining head, on the CPU."""
        source = self._sources[row["source"]]
        model = build(Model.model_validate(source.params["model"]), channels, int(row["granularity"]), seed=0)
        with readable(source.path / row["backbone"], "the weights of this network"):
            model.load_state_dict(source.tensors(row["backbone"]))
        return model.eval()
