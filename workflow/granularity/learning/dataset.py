"""The images a training reads, and what augmentation does to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.config.options import Augment
from granularity.machine.processes import from_first
from granularity.store.artifacts import Artifact, readable

RESIDENT_BYTES = 2**31  # smaller data sets are kept on the device


@dataclass(frozen=True)
class LabelSets:
    """Several labels an image: those of training image i are `values[offsets[i]:offsets[i + 1]]`.

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


class Data:
    """Pixels and target labels of both splits.

    Attributes:
        table: the sample table (`sample_id`, `split` and the target).
        train, val: row numbers in it.
        target: int64 [N] class numbers of the target, in alphabetical order of the classes of the training split;
            -1 for a validation image of a class that training never sees.
        target_names: the classes.
    """

    def __init__(self, samples: Artifact, pixels: Artifact, device: torch.device):
        name = samples.params["target"]
        self.table = samples.table("samples.parquet", dict.fromkeys(["sample_id", "split", name], "text"))
        self.train = np.flatnonzero(self.table["split"] == "train")
        self.val = np.flatnonzero(self.table["split"] == "val")
        self.target_names = np.unique(self.table[name].to_numpy(dtype=str)[self.train])
        self.target = pd.Index(self.target_names).get_indexer(self.table[name])  # int64; -1 where it is none of them
        array = pixels.array("pixels.npy", (None, None, None, None), np.uint8)
        if len(array) != len(self.table):
            raise GranularityError(f"{pixels.path}: {len(array)} images, but the sample table has {len(self.table)}")
        self.device = device
        moments = from_first(lambda: _moments(array, self.train))
        self._mean, self._std = (torch.tensor(v, dtype=torch.float32, device=device)[:, None, None] for v in moments)
        self._pixels = torch.from_numpy(array)
        if array.nbytes < RESIDENT_BYTES:
            self._pixels = self._pixels.to(device)

    @property
    def channels(self) -> int:
        return self._pixels.shape[-1]

    @property
    def side(self) -> int:
        """Of the square images, in pixels."""
        return self._pixels.shape[-2]

    def images(self, rows: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Normalised images: float32 [B, C, H, W] on the device, in channels-last order."""
        rows = torch.as_tensor(rows).to(self._pixels.device)
        pixels = self._pixels[rows].to(self.device).permute(0, 3, 1, 2).float().div(255)
        return (pixels - self._mean) / self._std

    def torch_target(self) -> torch.Tensor:
        """The training images' target classes, int64 [number of training images]."""
        return torch.from_numpy(self.target[self.train]).to(self.device)

    def labels_of(self, space: Artifact, classes: int) -> torch.Tensor | LabelSets:
        """The training images' labels in a label space of so many classes.

        Returns:
            int64 [number of training images] on the device, or sets of labels, on the CPU.

        Raises:
            GranularityError: labels of other images, in another order, missing or out of range.
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


def augment(
    images: torch.Tensor,
    options: Augment,
    seed: int,
    step: int,
    among: int | None = None,
    part: slice = slice(None),
) -> torch.Tensor:
    """Pad with the mean colour, crop and mirror at random: a function of the seed and the step, on any device.

    Args:
        among, part: where the images are a part of a batch, of so many; each is augmented as it is in the whole.
    """
    if options.pad:
        images = F.pad(images, [options.pad] * 4)
    if not options.flip and not options.pad and options.crop is None:
        return images
    rng = np.random.default_rng(seed_of(seed, "augment", step))
    count, _, height, width = images.shape
    crop, drawn = options.crop or height - 2 * options.pad, among or count
    offsets = torch.from_numpy(rng.integers(0, [height - crop + 1, width - crop + 1], size=(drawn, 2))[part])
    mirror = torch.from_numpy(rng.random(drawn)[part] < 0.5) if options.flip else torch.zeros(count, dtype=torch.bool)
    reach = torch.arange(crop)
    rows = offsets[:, :1] + reach
    columns = offsets[:, 1:] + torch.where(mirror[:, None], crop - 1 - reach, reach)
    batch = torch.arange(count)[:, None, None]
    rows, columns, batch = (index.to(images.device) for index in (rows, columns, batch))
    # Advanced indices on both sides of a slice put the slice last: [B, H, W, C], which is channels-last already.
    return images[batch, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def centre_crop(images: torch.Tensor, options: Augment) -> torch.Tensor:
    """What evaluation sees where training sees random crops."""
    side = images.shape[-1] if options.crop is None else min(options.crop, images.shape[-1])
    top = (images.shape[-1] - side) // 2
    return images[:, :, top : top + side, top : top + side]


def _moments(array: np.ndarray, rows: np.ndarray, chunk: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel on a 0..1 scale, a chunk of images in memory at a time."""
    total, squares, count = 0.0, 0.0, 0
    for start in range(0, len(rows), chunk):
        part = array[rows[start : start + chunk]].astype(np.float64) / 255
        total, squares = total + part.sum((0, 1, 2)), squares + (part**2).sum((0, 1, 2))
        count += part[..., 0].size
    mean = total / count
    return mean, np.sqrt(np.maximum(squares / count - mean**2, 1e-12))
