"""The images and labels that a training reads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data import moments
from granularity.data.shards import Shards, pictures
from granularity.learning import lockstep, views
from granularity.learning.augment import augment, centre_crop
from granularity.learning.feed import Feed, View
from granularity.learning.label_sets import LabelSets, read_labels
from granularity.learning.loop import Batches
from granularity.learning.options import Augment
from granularity.machine import processes
from granularity.store.artifacts import Artifact

RESIDENT_SHARE = 0.5  # of a GPU's free memory that images may take
READ_AT_ONCE = 2**26  # bytes


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
        found = pictures(pixels)
        if len(found) != len(self.table):
            raise GranularityError(f"{pixels.path}: {len(found)} images, but the sample table has {len(self.table)}")
        self.device = device
        self._pictures = found
        self._shape = (found.size, found.size, len(found.mode)) if isinstance(found, Shards) else found.shape[1:]
        self._pixels = None if isinstance(found, Shards) else _resident(found, device)
        self._moments = moments.moments(pixels, self.channels)

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
        return self._shape[-1]

    @property
    def side(self) -> int:
        """The side of the square images, or the short side of rectangles, in pixels."""
        return self._shape[0]

    def images(self, rows: np.ndarray | torch.Tensor) -> torch.Tensor:
        """Normalised images: float32 [B, C, H, W] on the device, in channels-last order; of rectangles the centre."""
        rows = torch.as_tensor(rows)
        if self._pixels is None:
            found = torch.from_numpy(np.stack([self._pictures[int(row)] for row in rows]))
        else:
            found = self._pixels[rows.to(self._pixels.device)]
        return self._normalised(found.to(self.device))

    def feed(
        self, batches: Batches, steps: int, options: Augment, seed: int, part: slice = slice(None)
    ) -> Callable[[int], torch.Tensor]:
        """What gives the augmented training images of each step, float32 [B, C, H, W] on the device.

        They are read ahead, where they do not lie in memory: steps should be asked for in order.

        Args:
            batches: which of the training images each step takes.
            part: which part of each batch; an image is augmented as it would be in the whole batch.
        """
        batches = copy.copy(batches)  # it holds the order of one epoch, and reading ahead is in the next one sooner
        read = part if self._lies_ready(options) else lockstep.part_of(batches.batch_size, part)

        def rows_of(step: int) -> np.ndarray:
            return self.train[batches(step)[read].numpy()]

        def read_ahead(view: View, shape: tuple[int, int, int]) -> Callable[[int], torch.Tensor]:
            feed = Feed(view, rows_of, steps, shape, self.device, read.start or 0)
            return lockstep.shared(feed, batches.batch_size, steps)

        def on_device(images: torch.Tensor, step: int) -> torch.Tensor:
            return augment(images, options, seed, step, among=batches.batch_size, part=part)

        if self._pixels is None or options.on_host:
            self._check_views(options)
            side = options.crop or self.side

            def view(row: int, step: int, place: int) -> np.ndarray:
                return views.training_view(self._picture(row), options, self.side, seed, step, place)

            feed = read_ahead(view, (side, side, self.channels))
            return lambda step: self._normalised(feed(step))
        if self._is_near:
            return lambda step: on_device(self.images(rows_of(step)), step)
        feed = read_ahead(lambda row, step, place: self._pictures[row], self._shape)
        return lambda step: on_device(self._normalised(feed(step)), step)

    def centres(self, rows: np.ndarray, options: Augment, batch: int) -> Iterator[torch.Tensor]:
        """Batches of images as evaluation sees them, in order: the centre crop, float32 [B, C, H, W] on the device."""
        steps = -(-len(rows) // batch)

        def rows_of(step: int) -> np.ndarray:
            return rows[step * batch : (step + 1) * batch]

        if self._pixels is None:
            side = min(options.crop or self.side, self.side)

            def view(row: int, step: int, place: int) -> np.ndarray:
                return views.evaluation_view(self._pictures.load(row), options, self.side)

            feed = Feed(view, rows_of, steps, (side, side, self.channels), self.device)
            yield from (self._normalised(feed(step)) for step in range(steps))
            return
        feed = Feed(lambda row, step, place: self._pictures[row], rows_of, steps, self._shape, self.device)
        for step in range(steps):
            images = self.images(rows_of(step)) if self._is_near else self._normalised(feed(step))
            yield centre_crop(images, options)

    def _check_views(self, options: Augment) -> None:
        """Raise a GranularityError if images cannot be cropped in main memory as the options say."""
        if options.pad:
            raise GranularityError("augment.pad: images of pixels.format jpeg are not padded; their crop lies inside")
        if options.crop is not None and options.crop > self.side:
            raise GranularityError(f"augment.crop: {options.crop} px do not fit in images of {self.side} px")
        if options.policy is not None:
            views.policy(options)

    def _lies_ready(self, options: Augment) -> bool:
        """Whether training images are taken from memory as they are, and need no reading ahead."""
        return self._pixels is not None and not options.on_host and self._is_near

    @property
    def _is_near(self) -> bool:
        """Whether images lie on the device, or in the memory that it computes in."""
        return self._pixels.device.type == self.device.type

    def _picture(self, row: int) -> Image.Image:
        if isinstance(self._pictures, Shards):
            return self._pictures.load(row)
        array = self._pictures[row]
        return Image.fromarray(array if self.channels > 1 else array[..., 0])

    def _normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 [B, H, W, C] on the device as float32 [B, C, H, W]."""
        mean, std = self._scale
        # In place: new room for each of these steps would take longer than what they do.
        return pixels.permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)

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


def _resident(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """The images as a tensor: on a GPU if they fit, and else the memory-mapped file."""
    if device.type != "cuda" or not _all_have_room(array.nbytes, device):
        return torch.from_numpy(array)
    found = torch.empty(array.shape, dtype=torch.uint8, device=device)
    rows = max(1, READ_AT_ONCE // max(1, array[0].nbytes))
    starts = range(0, len(array), rows)
    # Threads, as a page that is not in memory is waited for; few at once, as each holds what it has read.
    with ThreadPoolExecutor(8) as pool:
        for first in range(0, len(starts), 8):
            some = starts[first : first + 8]
            for start, part in zip(
                some, pool.map(lambda start: np.array(array[start : start + rows]), some), strict=True
            ):
                found[start : start + rows] = torch.from_numpy(part).to(device)
    return found


def _all_have_room(nbytes: int, device: torch.device) -> bool:
    """Whether images fit on the GPU of each process: all must read them in the same way."""
    return processes.everywhere(nbytes <= RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0])
