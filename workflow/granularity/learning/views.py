"""What training and evaluation see of one image, cropped in main memory, by the seed, the step and the place alone.

:mod:`granularity.learning.augment` does the same for whole batches of squares on the device; here are the crops of
images of any shape, those that are resized, and policies of libraries.
"""

from __future__ import annotations

import contextlib
import functools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.learning.options import Augment

TRIES = 10  # for a box that fits, as torchvision has it


def training_view(image: Image.Image, options: Augment, side: int, seed: int, step: int, place: int) -> np.ndarray:
    """What a training sees of an image: uint8 [crop, crop, C].

    Args:
        side: the side where no crop is asked for: the centre square.
        place: of the image in the batch of the step; with it and the seed it decides all that is drawn.
    """
    rng = np.random.default_rng([seed_of(seed, "view", step), place])
    crop = options.crop or side
    if options.scale is not None:
        box = _box(image.width, image.height, options.scale, options.ratio, rng)
        image = image.resize((crop, crop), Image.Resampling.BILINEAR, box=box)
    elif options.crop is None:
        image = _centre(image, crop)
    else:
        top, left = rng.integers(0, [image.height - crop + 1, image.width - crop + 1])
        image = image.crop((left, top, left + crop, top + crop))
    if options.flip and rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _array(image if options.policy is None else _altered(image, options, int(rng.integers(2**32))))


def evaluation_view(image: Image.Image, options: Augment, side: int) -> np.ndarray:
    """The centre of an image: uint8 [crop, crop, C], or of the image's short side where that is less."""
    return _array(_centre(image, min(options.crop or side, side)))


def _altered(image: Image.Image, options: Augment, seed: int) -> Image.Image:
    """An image after its policy, which may draw what it likes from any generator."""
    try:
        with _seeded(seed):
            seen = policy(options)(image)
        why = "it makes something else of an image"
        if isinstance(seen, type(image)) and (seen.size, seen.mode) == (image.size, image.mode):
            return seen
    except GranularityError:
        raise
    except Exception as error:  # of a library that does not take such an image
        why = " ".join(str(error).split())[:200] or type(error).__name__
    raise GranularityError(
        f"augment.policy: {options.policy['name']}: does not work on {image.mode} images of {image.width} px ({why})"
    )


@functools.lru_cache(maxsize=8)
def _policy(name: str, arguments: tuple[tuple[str, Any], ...]) -> Callable[[Image.Image], Any]:
    from torchvision.transforms import v2

    import granularity.machine.torchvision_compat  # noqa: F401

    made = getattr(v2, name, None)
    try:
        if isinstance(made, type) and issubclass(made, v2.Transform):
            return made(**{key: list(value) if isinstance(value, tuple) else value for key, value in arguments})
        from timm.data import auto_augment

        if arguments:
            raise ValueError("timm's policies take no arguments beside their name, such as rand-m9-mstd0.5")
        makers = {"rand": auto_augment.rand_augment_transform, "augmix": auto_augment.augment_and_mix_transform}
        make = makers.get(name.partition("-")[0], auto_augment.auto_augment_transform)
        return make(name, {})
    except Exception as error:  # libraries assert, look up and convert what they are given
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise GranularityError(
            f"augment.policy: {name}: neither torchvision.transforms.v2 nor timm makes it ({why})"
        ) from None


def policy(options: Augment) -> Callable[[Image.Image], Any]:
    """The policy of some options, a function of an image.

    Raises:
        GranularityError: no library has it, or it does not take these arguments.
    """
    given = {key: value for key, value in options.policy.items() if key != "name"}
    frozen = tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in given.items())
    return _policy(options.policy["name"], frozen)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Within, whatever a library draws follows from the seed; afterwards all draw on as if nothing had been."""
    alone = torch.utils.data.get_worker_info() is not None  # a reader, in which nobody else draws
    before = None if alone else (random.getstate(), np.random.get_state(), torch.get_rng_state())
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        if before is not None:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])


def _box(
    width: int, height: int, scale: Sequence[float], ratio: Sequence[float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """A box of a random share of the area and a random shape, drawn as torchvision's RandomResizedCrop draws it."""
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(TRIES):
        area, shape = width * height * rng.uniform(*scale), math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            top, left = rng.integers(0, [height - h + 1, width - w + 1]).tolist()
            return left, top, left + w, top + h
    shape = min(max(width / height, ratio[0]), ratio[1])  # the whole image, or the centre of one that is too long
    w, h = min(width, round(height * shape)), min(height, round(width / shape))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _centre(image: Image.Image, side: int) -> Image.Image:
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _array(image: Image.Image) -> np.ndarray:
    return np.asarray(image).reshape(image.height, image.width, -1)
