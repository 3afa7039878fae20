"""The networks that a job measures: the embedding, and for each run untrained, kept, pretrained, finetuned networks."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.learning.data.dataset import Data
from granularity.learning.networks.backbones import Backbones
from granularity.learning.options import Augment, Precision
from granularity.stages.measure.options import DEFAULT_OF

EMBEDDING = "embedding"
ABOUT = ("run", "network", "space", "family", "granularity", "pretrain_seed", "transfer", "finetune_seed")


@dataclass(frozen=True)
class MeasuredNetwork:
    """One network to measure; `source` has the weights of `row`, and is None for the embedding."""

    name: str  # of the run, with the epoch
    about: dict[str, Any]  # `ABOUT` and `epoch`; None: does not apply
    source: Backbones | None = None
    row: pd.Series | None = None

    def seen(self, data: Data) -> tuple[torch.nn.Module | None, np.ndarray | None, Data, Augment, Precision]:
        """Return the network on the images' device; the target class of each output (int64; -2 for none; None if
        outputs are not classes); and the images as it takes them, with the centre crop and the precision of its
        training. The embedding has only the images.
        """
        if self.source is None:
            return None, None, data, Augment(), "float32"
        targets, answers = self.source.targets(self.row), None
        if targets is not None:
            positions = pd.Index(data.target_names).get_indexer(targets)
            answers = np.where(positions >= 0, positions, -2)
        network = self.source.load(self.row, data.channels, self.about["epoch"]).to(data.device)
        about = self.source.about(self.row)
        seen = self.source.normalised(data, self.row)
        return network, answers, seen, Augment(crop=about["crop"]), about["precision"]

    @property
    def identity(self) -> dict[str, Any]:
        """`about`, and the digest of its weights (untrained: of the weights at the end of its training)."""
        if self.source is None:
            return {"run": EMBEDDING}
        epoch = self.about["epoch"]
        kept = epoch if epoch in self.source.epochs(self.row) else None
        return self.about | {"weights": self.source.sha256(self.row, kept)}


def chosen(
    pretrained: Backbones, finetuned: Backbones, runs: Iterable[str], of: Iterable[str] | None, embedded: bool
) -> list[MeasuredNetwork]:
    """Return the requested networks (`of`, as in the options), in the order of `runs`; `embedded`: whether there is an
    embedding. Raises GranularityError: there is no such run, or nothing to measure.
    """
    of, networks = set(of or DEFAULT_OF), []

    def add(source: Backbones, row: pd.Series, epoch: int) -> None:
        facts = {key: row.get("run_id" if key == "run" else key) for key in ABOUT} | {"epoch": epoch}
        facts = {key: value.item() if hasattr(value, "item") else value for key, value in facts.items()}
        about = {key: None if pd.isna(value) else value for key, value in facts.items()}
        networks.append(MeasuredNetwork(f"{Path(row['file']).stem}@{epoch}", about, source, row))

    if EMBEDDING in of and embedded:
        facts = {"run": EMBEDDING, "space": EMBEDDING, "family": "encoder"}
        networks.append(MeasuredNetwork(EMBEDDING, dict.fromkeys([*ABOUT, "epoch"]) | facts))
    for run in runs if of != {EMBEDDING} else ():
        row = pretrained.named(run)
        *between, last = pretrained.epochs(row)
        epochs = {"untrained": [0], "checkpoints": [epoch for epoch in between if epoch], "backbones": [last]}
        for epoch in (epoch for kind, several in epochs.items() if kind in of for epoch in several):
            add(pretrained, row, epoch)
        if "finetuned" in of:
            for _, child in finetuned.runs[finetuned.runs["parent"] == row["run_id"]].iterrows():
                add(finetuned, child, finetuned.about(child)["epoch"])
    if not networks:
        raise GranularityError(f"of: {', '.join(sorted(of))}: the given runs have no such networks")
    return networks
