"""open_clip's own transform, bit for bit, in two parts: to bytes (a quarter of the size for a GPU) and to floats."""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import Normalize, ToTensor

from granularity.base.errors import GranularityError


class Preprocessing:
    """An evaluation transform of open_clip; `shape` is the height and width that the network takes. Raise
    GranularityError unless it ends, like those of open_clip, in ToTensor and Normalize.
    """

    def __init__(self, transform: Callable):
        steps = list(getattr(transform, "transforms", ()))
        if len(steps) < 2 or not isinstance(steps[-2], ToTensor) or not isinstance(steps[-1], Normalize):
            raise GranularityError(f"encoder: its preprocessing, {transform}, is not one of open_clip's")
        self._steps = steps[:-2]
        mean, std = (torch.as_tensor(value, dtype=torch.float32) for value in (steps[-1].mean, steps[-1].std))
        self._mean, self._std = mean.view(-1, 1, 1), std.view(-1, 1, 1)
        self.shape = self.pixels(Image.new("RGB", (8, 8))).shape[:2]

    def pixels(self, image: Image.Image) -> np.ndarray:
        """Resize and crop an image: uint8 [H, W, 3]."""
        for step in self._steps:
            image = step(image)
        return np.asarray(image)

    def numbers(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the network's input, float32 [N, 3, H, W], from uint8 [N, H, W, 3], on the same device."""
        mean, std = (value.to(pixels.device, non_blocking=True) for value in (self._mean, self._std))
        # Divide by a tensor: given a number, a GPU would multiply by its inverse.
        whole = torch.full((), 255.0, device=pixels.device)
        found = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return found.div_(whole).sub_(mean).div_(std)
