"""The cost of a network, counted and not run."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from granularity.learning.network import build
from granularity.learning.options import Model


def forward_flops(model: Model, pixels: Any) -> tuple[float, int]:
    """Floating-point operations per image of a network's forward pass without its head; and the head's inputs.

    Args:
        pixels: the section `pixels`: `size` (side in pixels) and `mode` (L or RGB).
    """
    channels = len(pixels.mode)
    with torch.device("meta"):
        network = build(model, channels, 1, seed=0).eval()
        image = torch.empty(1, channels, pixels.size, pixels.size)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        network(image)
    return counter.get_total_flops() - 2 * network.num_features, network.num_features
