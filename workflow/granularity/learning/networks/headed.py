"""The methods of timm that every network of one linear head has alike: for a user's own network."""

import torch


class Headed(torch.nn.Module):
    """A network that sets `num_features` and defines `forward_features(images)`; its head is `fc`.

    Features [N, num_features], or maps [N, num_features, height, width], which are averaged over places.
    """

    num_features: int
    fc: torch.nn.Module

    def forward_head(self, features: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
        pooled = features.mean((2, 3)) if features.dim() == 4 else features
        return pooled if pre_logits else self.fc(pooled)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.forward_head(self.forward_features(images))

    def get_classifier(self) -> torch.nn.Module:
        return self.fc

    def reset_classifier(self, classes: int) -> None:
        self.fc = torch.nn.Linear(self.num_features, classes) if classes else torch.nn.Identity()
