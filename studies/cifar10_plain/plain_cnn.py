"""A plain convolutional network, without residual connections, for images of 32 pixels or less."""

import torch
from torch import nn

from granularity.learning.networks.headed import Headed

EXTENDS = "network"


class PlainCNN(Headed):
    """Blocks of 3x3 convolution, batch normalisation, ReLU and 2x2 max-pooling; average pooling, one linear head."""

    def __init__(self, channels: int, widths: list[int]):
        super().__init__()
        layers, self.num_features = [], widths[-1]
        for i, (before, after) in enumerate(zip([channels, *widths], widths, strict=False)):
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if i % 2 else []
        self.layers = nn.Sequential(*layers)

    def forward_features(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


def build(model, channels, seed):
    """`args.widths`: channels of each block."""
    return PlainCNN(channels, **(model.args or {}))
