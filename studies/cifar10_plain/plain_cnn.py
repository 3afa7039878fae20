"""A plain convolutional network, without residual connections, for images of 32 pixels or less."""

import torch
from torch import nn

EXTENDS = "network"


class PlainCNN(nn.Module):
    """Blocks of 3x3 convolution, batch normalisation, ReLU and 2x2 max-pooling; average pooling, one linear head."""

    def __init__(self, channels: int, widths: list[int]):
        super().__init__()
        layers, self.num_features = [], widths[-1]
        for i, (before, after) in enumerate(zip([channels, *widths], widths, strict=False)):
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if i % 2 else []
        self.layers, self.fc = nn.Sequential(*layers), nn.Identity()

    def forward_features(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)

    def forward_head(self, features: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        pooled = features.mean((2, 3))
        return pooled if pre_logits else self.fc(pooled)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.forward_head(self.forward_features(images))

    def get_classifier(self) -> nn.Module:
        return self.fc

    def reset_classifier(self, classes: int) -> None:
        self.fc = nn.Linear(self.num_features, classes) if classes else nn.Identity()


def build(model, channels, seed):
    """`args.widths`: channels of each block."""
    return PlainCNN(channels, **(model.args or {}))
