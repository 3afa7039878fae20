"""Find and load the networks of finished trainings, and initial weights."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.base.strict_json import parse_json
from granularity.learning.data.dataset import Data
from granularity.learning.networks.network import build, head_weights
from granularity.learning.options import Model
from granularity.machine.first_process import verified
from granularity.store.artifact import Artifact, readable

COLUMNS = {**dict.fromkeys(("run_id", "network", "space", "family"), "text"), "granularity": "whole?"}
COLUMNS |= {"pretrain_seed": "whole"}
FINETUNED = {"parent": "text", "transfer": "text", "finetune_seed": "whole"}


class Backbones:
    """The networks of some jobs, pretrained or finetuned. For arguments `epoch`, None is the end of the training.

    Attributes:
        inputs: their artifacts, by a role that names the job.
        runs: a row per network: `run_id`, `network`, `space`, `family`, `granularity` (null without classes),
            `pretrain_seed`, `file`, and `source`, the artifact's number; for finetuned ones also `parent` (the
            pretraining's run_id), `transfer` and `finetune_seed`.
    """

    def __init__(self, paths: Iterable[Path], kind: str = "pretrain"):
        self._sources, self._finetuned = [verified(path, kind) for path in paths], kind == "finetune"
        for source in self._sources if self._finetuned else ():
            if not source.facts["keep"]:
                raise GranularityError(f"{source.path}: its networks were not kept; set keep: true in transfers")
        names = [source.path.name for source in self._sources]
        self.inputs = {
            f"{kind}/{name}" if names.count(name) == 1 else f"{kind}/{i}/{name}": source
            for i, (name, source) in enumerate(zip(names, self._sources, strict=True))
        }
        file = "weights" if self._finetuned else "backbone"
        columns = COLUMNS | (FINETUNED if self._finetuned else {}) | {file: "text"}
        self.runs = self._tables("runs.parquet", columns).rename(columns={file: "file"})
        self._kept = self._tables("checkpoints.parquet", {"run_id": "text", "epoch": "whole", "file": "text"})

    def find(self, space: str, pretrain_seed: int) -> pd.Series:
        """Return the row of a pretraining."""
        found = (self.runs["space"] == space) & (self.runs["pretrain_seed"] == pretrain_seed)
        return self._only(found, f"pretrainings on '{space}' with seed {pretrain_seed}")

    def named(self, run: str) -> pd.Series:
        """Return the row of a run, by its name or its id."""
        stems = self.runs["file"].map(lambda file: Path(file).stem)
        return self._only((self.runs["run_id"] == run) | (stems == run), f"runs called '{run}'")

    def epochs(self, row: pd.Series) -> dict[int, str]:
        """Return the epochs whose weights were kept, ascending, and their files; the training ends with the last."""
        kept = self._kept[(self._kept["run_id"] == row["run_id"]) & (self._kept["source"] == row["source"])]
        return dict(sorted(zip(kept["epoch"].tolist(), kept["file"], strict=True)))

    def about(self, row: pd.Series, epoch: int | None = None) -> dict[str, Any]:
        """Return the metadata of a backbone's file: `model`, `outputs`, `channels`, `side`, `mean`, `std`, `crop`..."""
        from safetensors import safe_open

        source, file = self.at(row, epoch)
        known = readable(source.path / file, "the weights of a network")
        with known, safe_open(source.folder / file, "numpy") as weights:
            return parse_json(weights.metadata()["granularity"], f"{file}: its metadata")

    def load(self, row: pd.Series, channels: int | None = None, epoch: int | None = None) -> torch.nn.Module:
        """Return the network of a row, with its head, in evaluation mode on the CPU; epoch 0, if it was not kept, is
        rebuilt from the seed of a pretraining from scratch. Raise GranularityError if it takes images of other
        `channels`, the epoch was not kept, or weights do not fit.
        """
        about, fresh, facts = self.about(row), (0, None), self._sources[row["source"]].facts
        if channels not in (None, about["channels"]):
            raise GranularityError(
                f"{row['run_id']}: this network takes images of {about['channels']} channels, not {channels}; see "
                "pixels.mode"
            )
        again = epoch == 0 and not self._finetuned and 0 not in self.epochs(row)
        if again:
            if facts["init"] != "scratch":
                raise GranularityError(
                    f"{row['run_id']}: did not start from scratch; set keep: [0] to keep its initial weights"
                )
            fresh = seed_of(facts["seed"], "pretrain", int(row["pretrain_seed"])), facts["recipe"]["head_bias"]
        network = build(Model.model_validate(about["model"]), about["channels"], about["outputs"], *fresh)
        if not again:
            source, file = self.at(row, epoch)
            with readable(source.path / file, "the weights of this network"):
                network.load_state_dict(source.tensors(file))
        return network.eval()

    def sha256(self, row: pd.Series, epoch: int | None = None) -> str:
        """Return the SHA-256 of the file with a row's weights."""
        source, file = self.at(row, epoch)
        return source.manifest["files"][file]["sha256"]

    def targets(self, row: pd.Series) -> list[str | None] | None:
        """Return the target class of each output, None for an output without one; None if outputs are no classes."""
        source = self._sources[row["source"]]
        if self._finetuned:
            return source.table("classes.parquet", {"label": "whole", "name": "text"})["name"].tolist()
        classes = source.table("classes.parquet", {"space": "text", "label": "whole", "parent": "text?"})
        found = classes.loc[classes["space"] == row["space"], "parent"]
        return [None if pd.isna(name) else name for name in found] or None

    def normalised(self, data: Data, row: pd.Series) -> Data:
        """Return the data, normalised with the moments of the images that a network was pretrained on."""
        about = self.about(row)
        return data.normalised_with(np.array(about["mean"]), np.array(about["std"]))

    def at(self, row: pd.Series, epoch: int | None = None) -> tuple[Artifact, str]:
        """Return the artifact and the file of a row's weights."""
        source = self._sources[row["source"]]
        if epoch is None:
            return source, row["file"]
        files = self.epochs(row)
        if epoch not in files:
            raise GranularityError(f"{row['run_id']}: epoch {epoch} was not kept; kept: {list(files)} (option keep)")
        return source, files[epoch]

    def _tables(self, name: str, columns: dict[str, str]) -> pd.DataFrame:
        tables = [source.table(name, columns).assign(source=i) for i, source in enumerate(self._sources)]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*columns, "source"])

    def _only(self, found: pd.Series, what: str) -> pd.Series:
        if found.sum() != 1:
            where = ", ".join(str(source.path) for source in self._sources)
            raise GranularityError(f"{found.sum()} {what} in {where}")
        return self.runs[found].iloc[0]


def copy_backbone(network: torch.nn.Module, weights: dict[str, torch.Tensor], where: str) -> None:
    """Copy weights of the same architecture into a network, except for its head, which stays fresh. Raise
    GranularityError if a tensor of `where` is missing, has another shape, or is unknown to the network.
    """
    head, state = head_weights(network), network.state_dict()
    for name, value in state.items():
        if name not in head and name not in weights:
            raise GranularityError(
                f"{where}: has no tensor '{name}', which this network has; is the file from another model?"
            )
        if name not in head and weights[name].shape != value.shape:
            theirs, ours = (tuple(tensor.shape) for tensor in (weights[name], value))
            raise GranularityError(
                f"{where}: '{name}' is {theirs}, but {ours} in this network; is the file from another model?"
            )
    for name in weights:
        if name not in state and name not in head:
            raise GranularityError(f"{where}: '{name}' does not exist in this network; is the file from another model?")
    network.load_state_dict({name: value if name in head else weights[name] for name, value in state.items()})


def without_lineage(artifact: Artifact) -> Artifact:
    """Return an artifact for use with inputs that it was not made from, such as a backbone of another data set."""
    return dataclasses.replace(artifact, manifest={**artifact.manifest, "inputs": {}})
