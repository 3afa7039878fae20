"""The images and labels that a training reads."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.data import moments
from granularity.store.artifacts import Artifact, readable

RESIDENT_BYTES = 2**31  # smaller data sets are kept on the device


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


class Data:
    """Pixels and target labels of all splits.

    Attributes:
        table: the sample table (`sample_id`, `split` and the target).
        train, val: row numbers in it; :meth:`rows` gives those of any split.
        target: int64 [N] class numbers of the target, in alphabetical order of the classes of the training split;
            -1 for an image of a class that training never sees.
        target_names: the names of these classes.
        device: the device that images are put on.
    """

    def __init__(self, samples: Artifact, pixels: Artifact, device: torch.device):
        name = samples.facts["target"]
        self.table = samples.table("samples.parquet", dict.fromkeys(["sample_id", "split", name], "text"))
        self.train, self.val = self.rows("train"), self.rows("val")
        self.target_names = np.unique(self.table[name].to_numpy(dtype=str)[self.train])
        self.target = pd.Index(self.target_names).get_indexer(self.table[name])  # int64; -1 where it is none of them
        array = pixels.array("pixels.npy", (None, None, None, None), np.uint8)
        if len(array) != len(self.table):
            raise GranularityError(f"{pixels.path}: {len(array)} images, but the sample table has {len(self.table)}")
        self.device, self._moments = device, moments.moments(pixels, array.shape[-1])
        self._array = array
        self._pixels = torch.from_numpy(array)
        if array.nbytes < RESIDENT_BYTES:
            self._pixels = self._pixels.to(device)

    def rows(self, split: str) -> np.ndarray:
        """Row numbers of a split; none if there is no such split."""
        return np.flatnonzero(self.table["split"] == split)

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each channel, float64 [C] on a 0..1 scale: what images are normalised with.

        Those of the training split, unless :meth:`normalised_with` says otherwise.
        """
        return self._moments

    def normalised_with(self, mean: np.ndarray, std: np.ndarray) -> Data:
        """These data, normalised with other moments, such as those of the images a backbone was pretrained on."""
        other = copy.copy(self)
        other.__dict__.pop("_scale", None)
        other._moments = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
        return other

    @cached_property
    def _scale(self) -> list[torch.Tensor]:
        return [torch.tensor(v, dtype=torch.float32, device=self.device)[:, None, None] for v in self.moments]

    @property
    def channels(self) -> int:
        return self._pixels.shape[-1]

    @property
    def side(self) -> int:
        """The side of the square images, in pixels."""
        return self._pixels.shape[-2]

    def images(self, rows: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Normalised images: float32 [B, C, H, W] on the device, in channels-last order."""
        rows = torch.as_tensor(rows).to(self._pixels.device)
        pixels = self._pixels[rows].to(self.device).permute(0, 3, 1, 2).float().div(255)
        mean, std = self._scale
        return (pixels - mean) / std

    def torch_target(self) -> torch.Tensor:
        """The training images' target classes, int64 [number of training images]."""
        return torch.from_numpy(self.target[self.train]).to(self.device)

    def labels_of(self, space: Artifact, classes: int) -> torch.Tensor | LabelSets:
        """The training images' labels in a label space with `classes` classes.

        Returns:
            int64 [number of training images] on the device, or sets of labels, on the CPU.

        Raises:
            GranularityError: the labels are of other images, in another order, missing or out of range.
        """
        file = space.path / "labels.parquet"
        ids, values, offsets = read_labels(file)
        expected = self.table["sample_id"].iloc[self.train].reset_index(drop=True)
        if not ids.equals(expected):
            raise GranularityError(f"{space.path}: does not cover the training images of the sample table, row by row")
        if (offsets is not None) != space.json("properties.json", "granularity").get("multi_label", False):
            raise GranularityError(f"{file}: `label` is not of the type that multi_label of properties.json asks for")

        def image_of(pair: int) -> str:
            return expected[pair if offsets is None else int(np.searchsorted(offsets, pair, side="right")) - 1]

        outside = (values < 0) | (values >= classes)
        if outside.any():
            first = int(outside.argmax())
            raise GranularityError(
                f"{file}: label {values[first]} of '{image_of(first)}', but classes.parquet ends at {classes - 1}"
            )
        if offsets is None:
            return torch.from_numpy(values.astype(np.int64)).to(self.device)
        empty = np.diff(offsets) == 0
        if empty.any():
            raise GranularityError(f"{file}: '{expected[int(empty.argmax())]}' has no label; each image needs one")
        ascending = np.diff(values) > 0
        ascending[offsets[1:-1] - 1] = True  # from one image to the next
        if not ascending.all():
            raise GranularityError(f"{file}: the labels of '{image_of(int(ascending.argmin()))}' do not ascend")
        return LabelSets(values, offsets)


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
