"""A plain convolutional network whose labels may have units of their own in the last layer, or share them all."""

import torch
from torch import nn

from granularity.learning.networks.headed import Headed

EXTENDS = "network"


class OwnUnits(nn.Module):
    """A linear head whose outputs see units of their own, equally many each."""

    def __init__(self, units: int, classes: int):
        super().__init__()
        reach = (units // classes) ** -0.5  # as PyTorch's linear layers begin
        self.weight = nn.Parameter(torch.empty(classes, units // classes).uniform_(-reach, reach))
        self.bias = nn.Parameter(torch.empty(classes).uniform_(-reach, reach))

    def forward(self, units: torch.Tensor) -> torch.Tensor:
        seen = units[:, : self.weight.numel()].reshape(len(units), *self.weight.shape)
        return (seen * self.weight).sum(2) + self.bias


class Plain(Headed):
    """Blocks of 3x3 convolution, batch normalisation and ReLU, pooled after every other; average pooling, one head."""

    def __init__(self, channels: int, widths: list[int], own: bool):
        super().__init__()
        layers, self.num_features, self.own = [], widths[-1], own
        for i, (before, after) in enumerate(zip([channels, *widths], widths, strict=False)):
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if i % 2 else []
        self.layers = nn.Sequential(*layers)

    def forward_features(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)

    def reset_classifier(self, classes: int) -> None:
        head = OwnUnits if self.own else nn.Linear
        self.fc = head(self.num_features, classes) if classes else nn.Identity()


def build(model, channels, seed):
    """`args.widths`: channels of each block; `args.own`: whether each label has units of its own in the last one."""
    args = {"own": False} | (model.args or {})
    return Plain(channels, **args)
