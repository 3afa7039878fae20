"""A network of two layers on the pixels, with ReLU in between (Shi, Wei and Liang 2022, appendix E)."""

import torch
from torch import nn

from granularity.learning.networks.headed import Headed

EXTENDS = "network"


class TwoLayers(Headed):
    """`width` neurons, weights drawn with a variance of 1 / inputs, and one linear head."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.num_features, self.hidden = width, nn.Linear(inputs, width)
        nn.init.normal_(self.hidden.weight, std=inputs**-0.5)
        nn.init.zeros_(self.hidden.bias)

    def forward_features(self, images: torch.Tensor) -> torch.Tensor:
        return self.hidden(images.flatten(1)).relu()


def build(model, channels, seed):
    """`args`: `side` of the images in pixels, and `width`."""
    args = model.args or {}
    return TwoLayers(channels * args["side"] ** 2, args["width"])
