"""What a measure sees: one network, and the images and labels to measure it on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.learning.data.dataset import Data
from granularity.learning.options import Augment, Precision
from granularity.learning.training import evaluation


@dataclass
class View:
    """One network, and the images and labels to measure it on."""

    about: Mapping[str, Any]  # networks.ABOUT and `epoch`; None: does not apply
    network: torch.nn.Module | None  # in evaluation mode, on the device, with its head; None for the embedding
    # For each output of the head, the target class that it stands for: int64, indices of `data.target_names`, -2 for an
    # output that stands for none. None without a head.
    answers: np.ndarray | None
    splits: list[str]  # to measure on
    ranks: list[str]  # human ranks to look at
    label_of: Callable[[str], pd.Series]  # returns the class names of all images at a rank
    data: Data  # pixels, target classes, and the sample table's `sample_id` and `split`
    augment: Augment  # the centre crop of the network's own training, whose precision is `precision`
    precision: Precision = "float32"
    embedding: np.ndarray | None = None  # float32 [images, D]
    _features: dict[str, torch.Tensor] = field(default_factory=dict)

    def rows(self, split: str) -> np.ndarray:
        """Return the row numbers of a split in the sample table, int64 [N]. Raises GranularityError: no such split."""
        rows = self.data.rows(split)
        if not len(rows):
            splits = ", ".join(sorted(self.data.table["split"].unique()))
            raise GranularityError(f"splits: there are no images of the split '{split}'; there are {splits}")
        return rows

    def classes(self, rank: str) -> np.ndarray:
        """Return the names of a rank's classes in the training split, in alphabetical order."""
        return np.unique(self.label_of(rank).to_numpy(dtype=str)[self.data.train])

    def labels(self, split: str, rank: str) -> np.ndarray:
        """Return class numbers in the order of `classes`, int64 [N]; -1: the class is not in the training split."""
        return pd.Index(self.classes(rank)).get_indexer(self.label_of(rank).iloc[self.rows(split)])

    def predict(self, split: str, forward: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Apply a function of normalised images, float32 [B, C, H, W] on the device, to a split: [N, ...] on CPU."""
        return evaluation.predict(forward, self.data, self.rows(split), self.augment, self.precision)

    def features(self, split: str) -> torch.Tensor:
        """Return the inputs of the network's head, or rows of the embedding, computed once: float32 [N, D] on the CPU.
        Raises GranularityError: they are not finite, for instance because training diverged.
        """
        if split not in self._features:
            rows = self.rows(split)
            if self.network is None:
                features = torch.from_numpy(self.embedding[rows])
            else:
                features = evaluation.features(self.network, self.data, rows, self.augment, self.precision)
            finite = torch.cat([part.isfinite().all(1) for part in features.split(8192)])
            if not finite.all():
                image = self.data.table["sample_id"].iloc[rows[int(finite.int().argmin())]]
                raise GranularityError(
                    f"{self.about['run']} after epoch {self.about['epoch']}: the features of the image '{image}' are "
                    "not finite; did its training diverge?"
                )
            self._features[split] = features
        return self._features[split]
