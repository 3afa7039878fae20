"""The images and labels that a training reads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data import moments
from granularity.data.shards import Shards, pictures
from granularity.learning.data.augment import augment, centre_crop, evaluation_view, training_view
from granularity.learning.data.feed import Feed, View
from granularity.learning.data.order import Batches
from granularity.learning.options import Augment
from granularity.machine import processes
from granularity.store.artifact import Artifact, readable

RESIDENT_SHARE = 0.5  # share of a GPU's free memory that images may take
READ_AT_ONCE = 2**26  # bytes


class Data:
    """Pixels and target labels of all splits.

    Attributes:
        table: the sample table (`sample_id`, `split` and the target).
        train, val: row numbers in it; :meth:`rows` returns those of any split.
        target: int64 [N] class numbers of the target, in alphabetical order of the training split's classes; -1 for an
            image of a class without training images.
        target_names: the names of these classes.
        device: the device that images are put on.
        side, channels: side in pixels (of rectangles the short one) and channels of the images.
        moments: mean and standard deviation of each channel, float64 [C] on a 0..1 scale, with which images are
            normalised: those of the training split, unless :meth:`normalised_with` set others.
    """

    def __init__(self, samples: Artifact, pixels: Artifact, device: torch.device):
        name = samples.facts["target"]
        self.table = samples.table("samples.parquet", dict.fromkeys(["sample_id", "split", name], "text"))
        self.train, self.val = self.rows("train"), self.rows("val")
        self.target_names = np.unique(self.table[name].to_numpy(dtype=str)[self.train])
        self.target = pd.Index(self.target_names).get_indexer(self.table[name])  # int64; -1: another class
        images = pictures(pixels)
        if len(images) != len(self.table):
            raise GranularityError(f"{pixels.path}: {len(images)} images, but the sample table has {len(self.table)}")
        self.device, self._pictures = device, images
        self._shape = (images.size, images.size, len(images.mode)) if isinstance(images, Shards) else images.shape[1:]
        self.side, self.channels = self._shape[0], self._shape[-1]
        self._pixels = None if isinstance(images, Shards) else _resident(images, device)
        self.moments = moments.moments(pixels, self.channels)

    def rows(self, split: str) -> np.ndarray:
        """Return the row numbers of a split; none if there is no such split."""
        return np.flatnonzero(self.table["split"] == split)

    def normalised_with(self, mean: np.ndarray, std: np.ndarray) -> Data:
        """Return these data with other moments, such as those of the images that a backbone was pretrained on."""
        other = copy.copy(self)
        other.__dict__.pop("_scale", None)
        other.moments = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
        return other

    @cached_property
    def _scale(self) -> list[torch.Tensor]:
        return [torch.tensor(v, dtype=torch.float32, device=self.device)[:, None, None] for v in self.moments]

    def images(self, rows: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Return normalised images: float32 [B, C, H, W] on the device, channels-last; of rectangles the centre."""
        rows = torch.as_tensor(rows)
        if self._pixels is None:
            found = torch.from_numpy(np.stack([self._pictures[int(row)] for row in rows]))
        else:
            found = self._pixels[rows.to(self._pixels.device)]
        return self._normalised(found.to(self.device))

    def feed(
        self, batches: Batches, steps: int, options: Augment, seed: int, part: slice = slice(None)
    ) -> Callable[[int], torch.Tensor]:
        """Return a function from step to the augmented images of a part of its batch, float32 [B, C, H, W] on the
        device, equal to those in the whole batch. Images outside memory are read ahead, so call it for steps in order.
        """
        batches = copy.copy(batches)  # it caches one epoch's order, and reading ahead reaches the next epoch earlier

        def rows_of(step: int) -> np.ndarray:
            return self.train[batches(step)[part].numpy()]

        def view(row: int, step: int, place: int) -> np.ndarray:
            return training_view(self._picture(row), options, self.side, seed, step, place)

        if self._pixels is None or options.one_by_one:
            return self._read(rows_of, steps, view, options.crop or self.side, part.start or 0)
        images = self._read(rows_of, steps)
        return lambda step: augment(images(step), options, seed, step, among=batches.batch_size, part=part)

    def centres(self, rows: np.ndarray, options: Augment, batch: int) -> Iterator[torch.Tensor]:
        """Yield batches of images as evaluation sees them: centre crops, in order, float32 [B, C, H, W] on `device`."""
        parts = [rows[start : start + batch] for start in range(0, len(rows), batch)]
        steps, rows_of = range(len(parts)), parts.__getitem__

        def view(row: int, step: int, place: int) -> np.ndarray:
            return evaluation_view(self._picture(row), options, self.side)

        if self._pixels is None:
            yield from map(self._read(rows_of, len(steps), view, min(options.crop or self.side, self.side)), steps)
        else:
            images = self._read(rows_of, len(steps))
            yield from (centre_crop(images(step), options) for step in steps)

    def _read(
        self, rows_of: Callable[[int], np.ndarray], steps: int, view: View | None = None, side: int = 0, first: int = 0
    ) -> Callable[[int], torch.Tensor]:
        """Return a function from step to its normalised views, squares of side `side`; without a view, whole images."""
        if view is None and self._is_near:
            return lambda step: self.images(rows_of(step))
        shape = self._shape if view is None else (side, side, self.channels)
        view = view or (lambda row, step, place: self._pictures[row])
        feed = Feed(view, rows_of, steps, shape, self.device, first)
        return lambda step: self._normalised(feed(step))

    @property
    def _is_near(self) -> bool:
        """Whether images are on the device, or in the memory that it computes in."""
        return self._pixels.device.type == self.device.type

    def _picture(self, row: int) -> Image.Image:
        if isinstance(self._pictures, Shards):
            return self._pictures.load(row)
        array = self._pictures[row]
        return Image.fromarray(array if self.channels > 1 else array[..., 0])

    def _normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """Convert uint8 [B, H, W, C] on the device to normalised float32 [B, C, H, W]."""
        mean, std = self._scale
        # In place: allocating memory for each of these steps would take longer than the step itself.
        return pixels.permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)

    def torch_target(self) -> torch.Tensor:
        """Return the training images' target classes, int64 [number of training images]."""
        return torch.from_numpy(self.target[self.train]).to(self.device)

    def labels_of(self, space: Artifact, classes: int) -> torch.Tensor | LabelSets:
        """Return the training images' labels in a label space: int64 [n] on the device, or sets of labels on the CPU.
        Raise GranularityError if the labels belong to other images or another order, or a class does not exist.
        """
        import pyarrow.parquet as pq

        with readable(space.path / "labels.parquet", "a Parquet table"):
            table = pq.ParquetFile(space.path / "labels.parquet").read(columns=["sample_id", "label"])
        if not table["sample_id"].to_pandas().equals(self.table["sample_id"].iloc[self.train].reset_index(drop=True)):
            raise GranularityError(f"{space.path}: does not cover the training images of the sample table, row by row")
        column = table["label"].combine_chunks()
        several = hasattr(column, "offsets")
        values = (column.flatten() if several else column).to_numpy()
        if values.min() < 0 or values.max() >= classes:
            raise GranularityError(f"{space.path}: has labels {values.min()} to {values.max()}, but {classes} classes")
        if not several:
            return torch.from_numpy(values.astype(np.int64)).to(self.device)
        offsets = column.offsets.to_numpy().astype(np.int64)
        return LabelSets(values, offsets - offsets[0])


def _resident(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return the images as a tensor: on a GPU if they fit, otherwise the memory-mapped file."""
    if device.type != "cuda" or processes.agreed(
        array.nbytes > RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]
    ):  # all processes read them in the same way
        return torch.from_numpy(array)
    found = torch.empty(array.shape, dtype=torch.uint8, device=device)
    rows = max(1, READ_AT_ONCE // array[0].nbytes)
    for start in range(0, len(array), rows):
        found[start : start + rows] = torch.from_numpy(np.array(array[start : start + rows])).to(device)
    return found


@dataclass(frozen=True)
class LabelSets:
    """Several labels per image: those of image i are `values[offsets[i]:offsets[i + 1]]`; int32, int64 [N + 1]."""

    values: np.ndarray
    offsets: np.ndarray

    def multi_hot(self, picked: torch.Tensor, classes: int, device: torch.device) -> torch.Tensor:
        """Return which labels the training images `picked` [B] have, as 0 or 1: float32 [B, classes] on the device."""
        picked = picked.numpy()
        start = self.offsets[picked]
        count = self.offsets[picked + 1] - start
        image = np.repeat(np.arange(len(picked)), count)
        pair = np.arange(len(image)) + np.repeat(start - (np.cumsum(count) - count), count)
        place = torch.from_numpy(np.stack([image, self.values[pair]])).to(device)
        found = torch.zeros(len(picked), classes, device=device)
        found[place[0], place[1]] = 1.0
        return found


def vectors_of(embedding: Artifact, images: int) -> np.ndarray:
    """Return the vectors of an embedding, float32 [images, D]. Raise GranularityError if shape or values are wrong."""
    values = embedding.array("embedding.npy", (images, None), np.float32)
    if not np.isfinite(values).all():
        row = np.argmin(np.isfinite(values).all(1))
        raise GranularityError(f"{embedding.path / 'embedding.npy'}: row {row} is not finite")
    return values
