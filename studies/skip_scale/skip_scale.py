"""A chain of equal blocks x -> s x + f(x) for small images: plain at s = 0, residual at s = 1.

f is a 3x3 convolution of ReLU(x), which is normalised by batch or not. Its weights have He's variance, times
gain^2 (1 - s^2 + s^2 / depth). With gain 1, blocks without normalisation keep the mean square of their inputs at
first, whatever s (at s = 1 it grows by 1 / depth each).
"""

import torch
from torch import nn

from granularity.learning.networks.headed import Headed

EXTENDS = "network"


class Chain(Headed):
    """A 3x3 convolution, 4x4 average pooling, `depth` blocks; ReLU, the mean over places, one linear head.

    Args:
        width: channels everywhere.
        skip: s, which is fixed.
        norm: whether to normalise; without it convolutions have biases.
        gain: scales the initial weights of all blocks.
    """

    def __init__(self, channels: int, depth: int, width: int, skip: float, norm: bool, gain: float = 1.0):
        super().__init__()
        self.num_features, self.skip = width, skip
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=not norm)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=not norm) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) if norm else nn.Identity() for _ in range(depth + 1))
        scale = gain * (2 * (1 - skip**2 + skip**2 / depth)) ** 0.5
        for conv, std in ((self.stem, 1.0), *((conv, scale) for conv in self.convs)):
            nn.init.normal_(conv.weight, std=std * (9 * conv.in_channels) ** -0.5)
            if conv.bias is not None:
                nn.init.zeros_(conv.bias)

    def forward_features(self, images: torch.Tensor) -> torch.Tensor:
        x = nn.functional.avg_pool2d(self.stem(images), 4)
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = self.skip * x + conv(norm(x).relu())
        return self.norms[-1](x).relu()


def build(model, channels, seed):
    """`args`: `depth`, `width`, `skip`, `norm` and `gain` of :class:`Chain`."""
    return Chain(channels, **(model.args or {}))
