"""Build networks: fresh weights from a seed, a fresh head, and the changes that recipes ask for."""

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.learning.networks.architectures import timm as timm_networks
from granularity.learning.options import Model

METHODS = ("forward_features", "forward_head", "get_classifier", "reset_classifier")


def build(model: Model, channels: int, classes: int, seed: int, head_bias: float | None = None) -> torch.nn.Module:
    """Return a network with fresh weights and a head of `classes` outputs; networks of one seed have the same backbone
    for every head. Raise GranularityError if the name is unknown, the arguments do not fit, or a method is missing.
    """
    torch.manual_seed(seed)
    native = model.name in extensions.names("network") and model.name != "timm"
    network = (extensions.find("network", model.name) if native else timm_networks).build(model, channels, seed)
    lacking = [name for name in METHODS if not hasattr(network, name)]
    if lacking or not isinstance(network, torch.nn.Module):
        raise GranularityError(f"model.name = {model.name}: build() must return a network with {METHODS}")
    new_head(network, classes, seed + 2, head_bias)  # last: random numbers drawn for it would change the backbone's
    for layer in network.modules():
        shape = (layer.kernel_size, layer.padding) if type(layer) is torch.nn.Conv2d else None
        if shape == ((1, 1), (0, 0)) and layer.stride != (1, 1) and layer.in_channels // layer.groups < 8:
            layer.__class__ = Strided
    return network.to(memory_format=torch.channels_last)


class Strided(torch.nn.Conv2d):
    """A strided 1x1 convolution of subsampled pixels: oneDNN's strided one writes out of bounds below 8 channels."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        down, right = self.stride
        return torch.nn.functional.conv2d(images[:, :, ::down, ::right], self.weight, self.bias, groups=self.groups)


def new_head(network: torch.nn.Module, classes: int, seed: int, bias: float | None = None) -> None:
    """Replace the head by a fresh one, whose biases are all `bias` (None: drawn at random, as in PyTorch)."""
    torch.manual_seed(seed)
    network.reset_classifier(classes)
    if bias is not None:
        found = getattr(head_of(network), "bias", None)
        if found is None:
            raise GranularityError(f"head_bias = {bias}: the head of this network has no bias; set it to null")
        torch.nn.init.constant_(found, bias)


def head_of(network: torch.nn.Module) -> torch.nn.Module:
    """Return the layer that computes the outputs."""
    head = network.get_classifier()
    if not isinstance(head, torch.nn.Module):
        raise GranularityError(
            "head_bias, freeze_backbone: this network has several heads; these options need a network with one"
        )
    return head


def head_weights(network: torch.nn.Module) -> set[str]:
    """Return the names of the head's tensors in the network's `state_dict`."""
    head = network.get_classifier()
    heads = set(head) if isinstance(head, tuple | list) else {head}
    modules = [(name, module) for name, module in network.named_modules() if module in heads]
    return {f"{name}.{key}" for name, module in modules for key in module.state_dict()}


def freeze_backbone(network: torch.nn.Module) -> torch.nn.Module:
    """Make only the head trainable, with everything else as in evaluation; return the head."""
    head = head_of(network)
    network.eval().requires_grad_(False)
    return head.requires_grad_(True)


def remove_dropout(network: torch.nn.Module) -> None:
    """Set every rate of dropout to zero, also of paths (stochastic depth), patches and blocks."""
    from timm.layers.patch_dropout import PatchDropout, PatchDropoutWithIndices

    for module in network.modules():
        if isinstance(module, torch.nn.Dropout | torch.nn.Dropout1d | torch.nn.Dropout2d | torch.nn.Dropout3d):
            module.p = 0.0
        if isinstance(module, PatchDropout | PatchDropoutWithIndices):
            module.prob = 0.0
        for rate in {"drop_rate", "drop_prob"} & vars(module).keys():  # timm's other layers, and networks without one
            setattr(module, rate, 0.0)


def forward_flops(model: Model, pixels: Any) -> tuple[float, int]:
    """Return the operations of a forward pass per image (section `pixels`) without the head, and the head's inputs."""
    channels = len(pixels.mode)
    with torch.device("meta"):
        network = build(model, channels, 1, seed=0).eval()
        image = torch.empty(1, channels, pixels.size, pixels.size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(image)
    return counter.get_total_flops() - 2 * network.num_features, network.num_features
