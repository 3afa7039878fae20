"""The labels of images in a label space: one per image, or several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.store.artifacts import readable


@dataclass(frozen=True)
class LabelSets:
    """Several labels per image: those of image i are `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
        values: int32 [pairs], no label twice in an image.
        offsets: int64 [N + 1].
    """

    values: np.ndarray
    offsets: np.ndarray

    def multi_hot(self, picked: torch.Tensor, classes: int, device: torch.device) -> torch.Tensor:
        """1 where an image has the label: float32 [B, classes] on the device, for the training images picked [B]."""
        picked = picked.numpy()
        start = self.offsets[picked]
        count = self.offsets[picked + 1] - start
        image = np.repeat(np.arange(len(picked)), count)
        pair = np.arange(len(image)) + np.repeat(start - (np.cumsum(count) - count), count)
        place = torch.from_numpy(np.stack([image, self.values[pair]])).to(device)
        found = torch.zeros(len(picked), classes, device=device)
        found[place[0], place[1]] = 1.0
        return found

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def include(self, labels: np.ndarray) -> np.ndarray:
        """Whether each image has a label: bool [N], for one label of each, [N]."""
        image = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        found = np.zeros(len(self), dtype=bool)
        found[image[self.values == labels[image]]] = True
        return found


def read_labels(file: Path) -> tuple[pd.Series, np.ndarray, np.ndarray | None]:
    """Sample IDs, labels and, where images have several, where each image's begin: int64 [N + 1], else None."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with readable(file, "a Parquet table"):
        table = pq.ParquetFile(file).read()
    if missing := {"sample_id", "label"} - set(table.column_names):
        raise GranularityError(f"{file}: has no column {sorted(missing)}; it has {table.column_names}")
    column, offsets = table["label"].combine_chunks(), None
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        counts = column.value_lengths().fill_null(0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        column = column.flatten()
    if not pa.types.is_integer(column.type) or column.null_count:
        kind = "null" if column.null_count else column.type
        raise GranularityError(f"{file}: a label is {kind}; each must be an integer, or a list of integers")
    return table.select(["sample_id"]).to_pandas()["sample_id"], column.to_numpy(), offsets
