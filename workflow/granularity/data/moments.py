"""Channel moments of images, from exact sums computed while the images are decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from granularity.base.errors import GranularityError
from granularity.store.artifact import Artifact

if TYPE_CHECKING:
    from PIL import Image

FILE = "moments.json"
LEVELS = np.arange(256, dtype=np.int64)


def sums_of(image: Image.Image) -> np.ndarray:
    """Return the sums of each channel's values and of their squares: int64 [2, C], for 8 bits per channel."""
    counts = np.array(image.histogram(), dtype=np.int64).reshape(-1, 256)
    return np.stack([counts @ LEVELS, counts @ LEVELS**2])


def by_split(split: np.ndarray, pixels: np.ndarray, sums: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return, by split, `pixels` and each channel's `sum` and `squares`, from int64 [N] and int64 [N, 2, C]."""
    found = {}
    for name in dict.fromkeys(split):
        rows = split == name
        total, squares = sums[rows].sum(0).tolist()
        found[name] = {"pixels": int(pixels[rows].sum()), "sum": total, "squares": squares}
    return found


def moments(artifact: Artifact, channels: int, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each channel over a split, from 0 to 1: float64 [C], from exact sums."""
    sums = artifact.json(FILE, split)[split]
    try:
        count, total, squares = (sums[name] for name in ("pixels", "sum", "squares"))
        if not len(total) == len(squares) == channels or any(type(n) is not int for n in (count, *total, *squares)):
            raise ValueError
        mean = [s1 / (255 * count) for s1 in total]
        # In whole numbers, because floating-point differences would lose digits.
        variance = [(count * s2 - s1**2) / (255 * count) ** 2 for s1, s2 in zip(total, squares, strict=True)]
        return np.array(mean), np.sqrt(np.maximum(variance, 1e-12))
    except (KeyError, TypeError, ValueError, ArithmeticError):
        requirement = f"must contain pixels, sum and squares, as whole numbers for {channels} channels"
        raise GranularityError(f"{artifact.path / FILE}: '{split}' {requirement}") from None
