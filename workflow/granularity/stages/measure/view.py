"""The view that a measure has: one network, and the images and labels it is measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.learning import evaluation
from granularity.learning.dataset import Data
from granularity.learning.options import Augment, Precision
from granularity.store.checkpoints import Parts


class View:
    """One network, and the images and labels it is measured on.

    Attributes:
        about: `run`, `network`, `space`, `family`, `granularity`, `pretrain_seed`, `transfer`, `finetune_seed` and
            `epoch`; what does not apply is None.
        network: in evaluation mode, on the device, with its head; None for the embedding.
        answers: of each output of the head, the target class that it stands for: int64, numbers of
            `data.target_names`, -2 for an output that stands for none. None where there is no head.
        splits: the splits to measure on.
        ranks: the human ranks to look at.
        data: pixels, target classes, and the sample table's `sample_id` and `split`.
        parts: where long work is kept over a kill.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        network: torch.nn.Module | None,
        answers: np.ndarray | None,
        splits: list[str],
        ranks: list[str],
        labels: Callable[[str], pd.Series],
        data: Data,
        augment: Augment,
        precision: Precision = "float32",
        embedding: np.ndarray | None = None,
        parts: Parts | None = None,
    ):
        self.about, self.network, self.answers = about, network, answers
        self.splits, self.ranks, self.data = splits, ranks, data
        self._labels, self._embedding = labels, embedding
        self._augment, self._precision = augment, precision
        self._features: dict[str, torch.Tensor] = {}
        self.parts = parts or Parts(None)

    def rows(self, split: str) -> np.ndarray:
        """Row numbers of a split in the sample table, int64 [N].

        Raises:
            GranularityError: there is no such split.
        """
        found = np.flatnonzero(self.data.table["split"] == split)
        if not len(found):
            known = ", ".join(sorted(self.data.table["split"].unique()))
            raise GranularityError(f"splits: there are no images of the split '{split}'; there are {known}")
        return found

    def classes(self, rank: str) -> np.ndarray:
        """Names of a rank's classes in the training split, in alphabetical order."""
        return np.unique(self._labels(rank).to_numpy(dtype=str)[self.data.train])

    def labels(self, split: str, rank: str) -> np.ndarray:
        """Class numbers in the order of `classes`, int64 [N]; -1 for a class that is not in the training split."""
        return pd.Index(self.classes(rank)).get_indexer(self._labels(rank).iloc[self.rows(split)])

    def predict(self, split: str, forward: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """The values of a function for the images of a split, [N, ...] on the CPU.

        Args:
            forward: a function of normalised images, float32 [B, C, H, W] on the device.
        """
        return evaluation.predict(forward, self.data, self.rows(split), self._augment, self._precision)

    def features(self, split: str) -> torch.Tensor:
        """The features that the network's head sees, or rows of the embedding: float32 [N, D] on the CPU.

        They are computed once.

        Raises:
            GranularityError: they are not finite, as of a network whose training diverged.
        """
        if split not in self._features:
            rows = self.rows(split)
            if self.network is None:
                found = torch.from_numpy(self._embedding[rows])
            else:
                found = evaluation.features(self.network, self.data, rows, self._augment, self._precision)
            finite = torch.cat([part.isfinite().all(1) for part in found.split(8192)])
            if not finite.all():
                image = self.data.table["sample_id"].iloc[rows[int(finite.int().argmin())]]
                who = f"{self.about['run']} after epoch {self.about['epoch']}"
                raise GranularityError(
                    f"{who}: its features of the image '{image}' are not finite; did its training diverge?"
                )
            self._features[split] = found
        return self._features[split]
