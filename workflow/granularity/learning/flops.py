"""What a network costs, counted and not run."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from granularity.config.options import Model, Pixels
from granularity.learning.network import build


def forward_flops(model: Model, pixels: Pixels) -> tuple[float, int]:
    """Floating-point operations of a network's forward pass without its head, an image; and the head's inputs."""
    channels = {"L": 1, "RGB": 3}[pixels.mode]
    with torch.device("meta"):
        network = build(model, channels, 1, seed=0).eval()
        image = torch.empty(1, channels, pixels.size, pixels.size)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        network(image)
    return counter.get_total_flops() - 2 * network.num_features, network.num_features
