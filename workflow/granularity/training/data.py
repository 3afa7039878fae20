"""The images a training reads, and what augmentation does to them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from granularity.artifacts import Artifact
from granularity.config import Augment
from granularity.errors import GranularityError
from granularity.seeds import seed_of

RESIDENT_BYTES = 2**31  # smaller data sets are kept on the device


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
        self.table = samples.table("samples.parquet", ["sample_id", "split", name])
        self.train = np.flatnonzero(self.table["split"] == "train")
        self.val = np.flatnonzero(self.table["split"] == "val")
        self.target_names = np.unique(self.table[name].to_numpy(dtype=str)[self.train])
        self.target = pd.Index(self.target_names).get_indexer(self.table[name])  # int64; -1 where it is none of them
        array = pixels.array("pixels.npy")
        if len(array) != len(self.table):
            raise GranularityError(f"{pixels.path}: {len(array)} images, but the sample table has {len(self.table)}")
        self.device = device
        moments = _moments(array, self.train)
        self._mean, self._std = (torch.tensor(v, dtype=torch.float32, device=device)[:, None, None] for v in moments)
        self._pixels = torch.from_numpy(array)
        if array.nbytes < RESIDENT_BYTES:
            self._pixels = self._pixels.to(device)

    @property
    def channels(self) -> int:
        return self._pixels.shape[-1]

    def images(self, rows: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Normalised images: float32 [B, C, H, W] on the device, in channels-last order."""
        rows = torch.as_tensor(rows).to(self._pixels.device)
        pixels = self._pixels[rows].to(self.device).permute(0, 3, 1, 2).float().div(255)
        return (pixels - self._mean) / self._std

    def torch_target(self) -> torch.Tensor:
        """The training images' target classes, int64 [number of training images]."""
        return torch.from_numpy(self.target[self.train]).to(self.device)

    def labels_of(self, space: Artifact) -> torch.Tensor:
        """The training images' labels in a label space, int64 [number of training images]."""
        labels = space.table("labels.parquet", ["sample_id", "label"])
        expected = self.table["sample_id"].iloc[self.train].reset_index(drop=True)
        if not labels["sample_id"].equals(expected):
            raise GranularityError(f"{space.path}: does not cover the training images of the sample table, row by row")
        return torch.from_numpy(labels["label"].to_numpy().astype(np.int64)).to(self.device)


def augment(images: torch.Tensor, options: Augment, seed: int, step: int) -> torch.Tensor:
    """Pad with the mean colour, crop and mirror at random: a function of the seed and the step, on any device."""
    if options.pad:
        images = F.pad(images, [options.pad] * 4)
    if not options.flip and not options.pad and options.crop is None:
        return images
    rng = np.random.default_rng(seed_of(seed, "augment", step))
    count, _, height, width = images.shape
    crop = options.crop or height - 2 * options.pad
    offsets = torch.from_numpy(rng.integers(0, [height - crop + 1, width - crop + 1], size=(count, 2)))
    mirror = torch.from_numpy(rng.random(count) < 0.5) if options.flip else torch.zeros(count, dtype=torch.bool)
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
