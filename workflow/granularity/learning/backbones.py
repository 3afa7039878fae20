"""Finding and loading the networks that trainings left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.base.strict_json import parse_json
from granularity.learning.dataset import Data
from granularity.learning.network import build
from granularity.learning.options import Model
from granularity.machine.first_process import verified
from granularity.store.artifacts import readable

COLUMNS = dict.fromkeys(["run_id", "network", "space", "family"], "text")
COLUMNS |= {"granularity": "whole?", "pretrain_seed": "whole"}
FINETUNED = {"parent": "text", "transfer": "text", "finetune_seed": "whole"}
WEIGHTS = {"pretrain": "backbone", "finetune": "weights"}  # kind -> the column that names the file


class Backbones:
    """The networks of some jobs, pretrained or finetuned.

    Attributes:
        inputs: their artifacts, by a role that names the job.
        runs: a row per network: `run_id`, `network`, `space`, `family`, `granularity` (null without classes),
            `pretrain_seed`, `file`, and `source`, the artifact's number; of finetuned ones `parent` (the run_id of the
            pretraining), `transfer` and `finetune_seed`, too.
        checkpoints: a row per kept epoch: `run_id`, `epoch`, `file`, `source`; the last epoch is one of them.
    """

    def __init__(self, paths: Iterable[Path], kind: str = "pretrain"):
        self._sources = [verified(path, kind) for path in paths]
        for source in self._sources if kind == "finetune" else ():
            if not source.facts["keep"]:
                raise GranularityError(f"{source.path}: its networks were not kept; write keep: true in transfers")
        names = [source.path.name for source in self._sources]
        self.inputs = {
            f"{kind}/{name}" if names.count(name) == 1 else f"{kind}/{i}/{name}": source
            for i, (name, source) in enumerate(zip(names, self._sources, strict=True))
        }
        columns = COLUMNS | (FINETUNED if kind == "finetune" else {}) | {WEIGHTS[kind]: "text"}
        self.runs = self._tables("runs.parquet", columns).rename(columns={WEIGHTS[kind]: "file"})
        self.checkpoints = self._tables("checkpoints.parquet", {"run_id": "text", "epoch": "whole", "file": "text"})
        self._kind = kind

    def find(self, space: str, pretrain_seed: int) -> pd.Series:
        """The row of one pretraining."""
        found = self.runs[(self.runs["space"] == space) & (self.runs["pretrain_seed"] == pretrain_seed)]
        return self._only(found, f"pretrainings on '{space}' with seed {pretrain_seed}")

    def named(self, run: str) -> pd.Series:
        """The row of one run, by its name or its id."""
        stems = self.runs["file"].map(lambda file: Path(file).stem)
        return self._only(self.runs[(self.runs["run_id"] == run) | (stems == run)], f"runs called '{run}'")

    def epochs(self, row: pd.Series) -> list[int]:
        """The epochs at which the weights of a run were kept, ascending; the last is the end of its training.

        Raises:
            GranularityError: no weights of the run are listed.
        """
        found = sorted(self._checkpoints_of(row)["epoch"])
        if not found:
            file = self._sources[row["source"]].path / "checkpoints.parquet"
            raise GranularityError(f"{file}: lists no weights of {row['run_id']}")
        return found

    def about(self, row: pd.Series, epoch: int | None = None) -> dict[str, Any]:
        """The record in a backbone's file: `model`, `outputs`, `channels`, `side`, `mean`, `std`, `crop`, ..."""
        from safetensors import safe_open

        source, file = self._sources[row["source"]], self._file(row, epoch)
        known = readable(source.path / file, "the weights of a network")
        with known, safe_open(source.folder / file, "numpy") as weights:
            return parse_json(weights.metadata()["granularity"], f"{file}: its metadata")

    def load(self, row: pd.Series, channels: int | None = None, epoch: int | None = None) -> torch.nn.Module:
        """The network of a row, with its head, in evaluation mode on the CPU.

        Args:
            channels: of the images that the network is for (None: those it was trained on).
            epoch: a kept epoch (None: the end of its training).

        Raises:
            GranularityError: the network takes images of other channels, the epoch was not kept, or weights do not fit.
        """
        source, file = self._sources[row["source"]], self._file(row, epoch)
        about, classes = self.about(row, epoch), row["granularity"]
        if self._kind == "pretrain" and not pd.isna(classes) and classes != about["outputs"]:
            raise GranularityError(
                f"{source.path / file}: has {about['outputs']} outputs, and runs.parquet says {classes} classes"
            )
        network = self._built(row, about, channels, seed=0)
        with readable(source.path / file, "the weights of this network"):
            network.load_state_dict(source.tensors(file))
        return network.eval()

    def weights(self, row: pd.Series, epoch: int | None = None) -> dict[str, torch.Tensor]:
        """The tensors of a row."""
        return self._sources[row["source"]].tensors(self._file(row, epoch))

    def sha256(self, row: pd.Series, epoch: int | None = None) -> str:
        """SHA-256 of the file of a row's weights.

        Raises:
            GranularityError: the artifact has no such file.
        """
        source, file = self._sources[row["source"]], self._file(row, epoch)
        if file not in source.manifest["files"]:
            raise GranularityError(f"{source.path / file}: missing (the manifest does not list it)")
        return source.manifest["files"][file]["sha256"]

    def untrained(self, row: pd.Series, channels: int | None = None) -> torch.nn.Module:
        """The network of a pretraining before its first step, in evaluation mode on the CPU.

        Raises:
            GranularityError: the network did not start from scratch, and epoch 0 was not kept.
        """
        if 0 in self.epochs(row):
            return self.load(row, channels, epoch=0)
        params = self._sources[row["source"]].facts
        if params["init"] != "scratch":
            raise GranularityError(f"{row['run_id']}: did not start from scratch; write keep: [0] to keep its start")
        seed = seed_of(params["seed"], "pretrain", int(row["pretrain_seed"]))
        return self._built(row, self.about(row), channels, seed, params["recipe"]["head_bias"]).eval()

    def targets(self, row: pd.Series) -> list[str | None] | None:
        """The target class that each output stands for, or None for that output; None where outputs are no classes."""
        source = self._sources[row["source"]]
        if self._kind == "finetune":
            return source.table("classes.parquet", {"label": "whole", "name": "text"})["name"].tolist()
        classes = source.table("classes.parquet", {"space": "text", "label": "whole", "parent": "text?"})
        found = classes.loc[classes["space"] == row["space"], "parent"]
        return [None if pd.isna(name) else name for name in found] or None

    def normalised(self, data: Data, row: pd.Series) -> Data:
        """The data, normalised with the moments of the images that a network was pretrained on."""
        about = self.about(row)
        return data.normalised_with(np.array(about["mean"]), np.array(about["std"]))

    def _built(
        self, row: pd.Series, about: dict, channels: int | None, seed: int, head_bias: float | None = None
    ) -> torch.nn.Module:
        own = about["channels"]
        if channels not in (None, own):
            raise GranularityError(
                f"{row['run_id']}: this network takes images of {own} channels, not {channels}; see pixels.mode"
            )
        return build(Model.model_validate(about["model"]), own, about["outputs"], seed, head_bias)

    def _file(self, row: pd.Series, epoch: int | None) -> str:
        if epoch is None:
            return row["file"]
        kept = self._checkpoints_of(row)
        found = kept[kept["epoch"] == epoch]
        if not len(found):
            raise GranularityError(f"{row['run_id']}: epoch {epoch} was not kept, but {self.epochs(row)}; see keep")
        return found.iloc[0]["file"]

    def _checkpoints_of(self, row: pd.Series) -> pd.DataFrame:
        kept = self.checkpoints
        return kept[(kept["run_id"] == row["run_id"]) & (kept["source"] == row["source"])]

    def _tables(self, name: str, columns: dict[str, str]) -> pd.DataFrame:
        tables = [source.table(name, columns).assign(source=i) for i, source in enumerate(self._sources)]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*columns, "source"])

    def _only(self, found: pd.DataFrame, what: str) -> pd.Series:
        if len(found) != 1:
            where = ", ".join(str(source.path) for source in self._sources)
            raise GranularityError(f"{len(found)} {what} in {where}")
        return found.iloc[0]
