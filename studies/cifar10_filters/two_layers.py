"""A network of two layers on the pixels, with ReLU in between (Shi, Wei and Liang 2022, appendix E)."""

import torch
from torch import nn

EXTENDS = "network"


class TwoLayers(nn.Module):
    """`width` neurons, weights drawn with a variance of 1 / inputs, and one linear head."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.num_features, self.hidden, self.fc = width, nn.Linear(inputs, width), nn.Identity()
        nn.init.normal_(self.hidden.weight, std=inputs**-0.5)
        nn.init.zeros_(self.hidden.bias)

    def forward_features(self, images: torch.Tensor) -> torch.Tensor:
        return self.hidden(images.flatten(1)).relu()

    def forward_head(self, features: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        return features if pre_logits else self.fc(features)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.forward_head(self.forward_features(images))

    def get_classifier(self) -> nn.Module:
        return self.fc

    def reset_classifier(self, classes: int) -> None:
        self.fc = nn.Linear(self.num_features, classes) if classes else nn.Identity()


def build(model, channels, seed):
    """`args`: `side` of the images in pixels, and `width`."""
    args = model.args or {}
    return TwoLayers(channels * args["side"] ** 2, args["width"])
