"""The networks: timm's, with a stem for small images."""

from __future__ import annotations

from granularity.machine import torchvision_compat  # noqa: F401  (before timm, which imports torchvision)

import timm  # isort: skip
import torch  # isort: skip

from granularity.base.errors import GranularityError
from granularity.config.options import Model, Recipe


def build(params: Model, channels: int, classes: int, seed: int, head_bias: float | None = None) -> torch.nn.Module:
    """A network with fresh weights and a head of `classes` outputs.

    Two networks of one seed have the same backbone whatever their heads, so arms start from the same place.

    Raises:
        GranularityError: timm has no such network, or it does not take the arguments.
    """
    torch.manual_seed(seed)
    try:
        model = timm.create_model(params.name, in_chans=channels, num_classes=0, **(params.args or {}))
        model.get_classifier  # noqa: B018  (a network for features alone has none)
    except Exception as error:  # whatever timm's arithmetic runs into with arguments that make no network
        raise GranularityError(f"model.name = {params.name}, model.args = {params.args}: {error}") from error
    if params.stem == "small":
        if not hasattr(model, "conv1") or not hasattr(model, "maxpool"):
            raise GranularityError(f"model.stem = small: {params.name} is no ResNet; set model.stem to timm")
        torch.manual_seed(seed + 1)
        model.conv1 = torch.nn.Conv2d(channels, model.bn1.num_features, 3, stride=1, padding=1, bias=False)
        torch.nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = torch.nn.Identity()
    new_head(model, classes, seed + 2, head_bias)  # last: random numbers drawn for the head would shift the backbone's
    return model.to(memory_format=torch.channels_last)


def new_head(model: torch.nn.Module, classes: int, seed: int, bias: float | None = None) -> None:
    """Replace the head by a fresh one, as between pretraining and finetuning.

    Args:
        bias: of every output (None: drawn at random, as PyTorch does).
    """
    torch.manual_seed(seed)
    model.reset_classifier(classes)
    if bias is not None:
        found = getattr(head_of(model), "bias", None)
        if found is None:
            raise GranularityError(f"head_bias = {bias}: the head of this network has no bias; set it to null")
        torch.nn.init.constant_(found, bias)


def head_of(model: torch.nn.Module) -> torch.nn.Module:
    head = model.get_classifier()
    if not isinstance(head, torch.nn.Module):
        raise GranularityError("head_bias, freeze_backbone: this network has several heads; they are for one")
    return head


def freeze_backbone(model: torch.nn.Module) -> torch.nn.Module:
    """Leave the head's weights alone to be trained, and all else as it is in evaluation; returns the head."""
    head = head_of(model)
    model.eval().requires_grad_(False)
    return head.requires_grad_(True)


def remove_dropout(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout | torch.nn.Dropout1d | torch.nn.Dropout2d | torch.nn.Dropout3d):
            module.p = 0.0
        if hasattr(module, "drop_rate"):  # timm's networks without a layer for it
            module.drop_rate = 0.0


def optimizer(weights: torch.nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimizer of a recipe, on all weights alike (the paper excludes none from weight decay)."""
    common = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, "foreach": True}
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(weights.parameters(), momentum=recipe.momentum, nesterov=recipe.nesterov, **common)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer](weights.parameters(), **common)
