"""Augment and crop images; seed, step and place in the batch determine all random numbers."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from granularity.base import extensions
from granularity.base.seeds import seed_of
from granularity.learning.options import Augment

TRIES, RATIO = 10, (0.75, 1.3333333)  # attempts to draw a box that fits; range of width / height, as in torchvision


def augment(
    images: torch.Tensor, options: Augment, seed: int, step: int, among: int | None = None, part: slice = slice(None)
) -> torch.Tensor:
    """Pad with the mean colour, crop and mirror at random, by draws that depend only on seed and step, on any device;
    the images are `part` of a batch of `among`, and change as they would in the whole batch.
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
    # Advanced indices on both sides of a slice put it last: [B, H, W, C], which is already channels-last.
    return images[batch, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def centre_crop(images: torch.Tensor, options: Augment) -> torch.Tensor:
    """Cut out the centre, which evaluation uses in place of random crops."""
    side = images.shape[-1] if options.crop is None else min(options.crop, images.shape[-1])
    top = (images.shape[-1] - side) // 2
    return images[:, :, top : top + side, top : top + side]


def training_view(image: Image.Image, options: Augment, side: int, seed: int, step: int, place: int) -> np.ndarray:
    """Return an image as a training sees it: uint8 [crop, crop, C]; without `crop`, the centre square of side `side`.
    Seed, step and place in the batch determine all random draws.
    """
    rng = np.random.default_rng([seed_of(seed, "view", step), place])
    crop = options.crop or side
    if options.scale is not None:
        box = _box(image.width, image.height, options.scale, rng)
        image = image.resize((crop, crop), Image.Resampling.BILINEAR, box=box)
    elif options.crop is None:
        image = _centre(image, crop)
    else:
        top, left = rng.integers(0, [image.height - crop + 1, image.width - crop + 1])
        image = image.crop((left, top, left + crop, top + crop))
    if options.flip and rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if options.policy is not None:
        image = extensions.find("augmentation", options.policy).alter(image, options, int(rng.integers(2**32)))
    return _array(image)


def evaluation_view(image: Image.Image, options: Augment, side: int) -> np.ndarray:
    """Return the centre of an image: uint8 [crop, crop, C]; the side is at most `side`, the image's short side."""
    return _array(_centre(image, min(options.crop or side, side)))


def _box(width: int, height: int, scale: Sequence[float], rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw a box of a random share of the area and a random shape, like torchvision's RandomResizedCrop."""
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    for _ in range(TRIES):
        area, shape = width * height * rng.uniform(*scale), math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            top, left = rng.integers(0, [height - h + 1, width - w + 1]).tolist()
            return left, top, left + w, top + h
    shape = min(max(width / height, RATIO[0]), RATIO[1])  # the whole image, or the centre of one that is too long
    w, h = min(width, round(height * shape)), min(height, round(width / shape))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _centre(image: Image.Image, side: int) -> Image.Image:
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _array(image: Image.Image) -> np.ndarray:
    return np.asarray(image).reshape(image.height, image.width, -1)
