"""Smooth pictures of many shapes, as photographs are, and what an artifact of pixels says of such."""

from pathlib import Path

import numpy as np
from PIL import Image

from granularity.data import moments

SHAPES = [(40, 30), (30, 40), (24, 24), (90, 31), (17, 400), (50, 26)]  # width, height


def photograph(number: int, width: int, height: int) -> Image.Image:
    """A few waves of colour."""
    rng = np.random.default_rng(number)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = [np.sin(rng.uniform(1, 9) * x + rng.uniform(1, 9) * y + rng.uniform(0, 6)) for _ in range(3)]
    return Image.fromarray((127 + 120 * np.stack(waves, -1)).astype(np.uint8))


def folder_of(
    root: Path, count: int = 60, shapes=SHAPES, classes: int = 3, ending: str = "png", scale: int = 1
) -> Path:
    """A folder of classes with photographs; returns it."""
    for i in range(count):
        file = root / f"c{i % classes}" / f"{i:04d}.{ending}"
        file.parent.mkdir(parents=True, exist_ok=True)
        width, height = shapes[i % len(shapes)]
        photograph(i, scale * width, scale * height).save(file)
    return root


def moments_of(split: np.ndarray, values: np.ndarray) -> dict:
    """`moments.json` of an array of images, uint8 [N, H, W, C], summed by numpy."""
    wide = values.astype(np.int64)
    sums = np.stack([wide.sum((1, 2)), (wide**2).sum((1, 2))], axis=1)
    pixels = np.full(len(values), values[0, ..., 0].size, np.int64)
    count = min(len(split), len(values))
    return moments.by_split(split[:count], pixels[:count], sums[:count])
