"""Augmentation: what a training sees of its images, a function of the seed and the step, on any device."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from granularity.base.seeds import seed_of
from granularity.learning.options import Augment


def augment(
    images: torch.Tensor,
    options: Augment,
    seed: int,
    step: int,
    among: int | None = None,
    part: slice = slice(None),
) -> torch.Tensor:
    """Pad with the mean colour, crop and mirror at random, by the seed and the step alone, on any device.

    Args:
        among: size of the batch that the images are a part of (None: they are all of it).
        part: which part; each image is augmented as it would be in the whole batch.
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
    """Cut out the centre, which evaluation sees where training sees random crops."""
    side = images.shape[-1] if options.crop is None else min(options.crop, images.shape[-1])
    top = (images.shape[-1] - side) // 2
    return images[:, :, top : top + side, top : top + side]
