"""The networks: timm's, with a stem for small images."""

from __future__ import annotations

from granularity import torchvision_compat  # noqa: F401  (before timm, which imports torchvision)

import timm  # isort: skip
import torch  # isort: skip

from granularity.config import Model
from granularity.errors import GranularityError


def build(params: Model, channels: int, classes: int, seed: int) -> torch.nn.Module:
    """A network with fresh weights and a head of `classes` outputs.

    Two networks of one seed have the same backbone whatever their heads, so arms start from the same place.

    Raises:
        GranularityError: timm has no such network, or it does not take the arguments.
    """
    torch.manual_seed(seed)
    try:
        model = timm.create_model(params.name, in_chans=channels, num_classes=0, **(params.args or {}))
    except (RuntimeError, TypeError, ValueError) as error:
        raise GranularityError(f"model.name = {params.name}, model.args = {params.args}: {error}") from error
    if params.stem == "small":
        if not hasattr(model, "conv1") or not hasattr(model, "maxpool"):
            raise GranularityError(f"model.stem = small: {params.name} is no ResNet; set model.stem to timm")
        torch.manual_seed(seed + 1)
        model.conv1 = torch.nn.Conv2d(channels, model.bn1.num_features, 3, stride=1, padding=1, bias=False)
        torch.nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = torch.nn.Identity()
    new_head(model, classes, seed + 2)  # last: random numbers drawn for the head would shift the backbone's
    return model.to(memory_format=torch.channels_last)


def new_head(model: torch.nn.Module, classes: int, seed: int) -> None:
    """Replace the head by a fresh one, as between pretraining and finetuning."""
    torch.manual_seed(seed)
    model.reset_classifier(classes)


def optimizer(model: torch.nn.Module, recipe) -> torch.optim.Optimizer:
    """The optimizer of a recipe, on all weights alike (the paper excludes none from weight decay)."""
    common = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, "foreach": True}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=recipe.momentum, **common)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer](model.parameters(), **common)
