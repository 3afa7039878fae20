"""Train small networks of one architecture together, as one network of grouped convolutions (docs/jobs.md)."""

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from granularity.learning.data.dataset import Data
from granularity.learning.data.order import Batches
from granularity.learning.networks.network import head_of, remove_dropout
from granularity.learning.options import Recipe
from granularity.learning.training.loop import minimise
from granularity.learning.training.precision import computing

# Most floating-point operations in a step's forward passes at which stacking pays, and most networks in a stack: for
# CPUs measured by benchmarks/run.py train_step, for GPUs guessed.
WORK = {"cpu": 1e9, "cuda": 1e11}
MOST = {"cpu": 12, "cuda": 64}
SAME = 1e-4  # largest difference between outputs of a stack and its networks, relative to the largest output
TENSORS = {  # tensors of the layers that can be stacked, each along the channels
    nn.Conv2d: ("weight", "bias"),
    nn.modules.batchnorm._NormBase: ("weight", "bias", "running_mean", "running_var"),
}


class Stack(nn.Module):
    """Copies of networks run as one: float32 [B, N * C, H, W] for all gives outputs [B, G] of each."""

    def __init__(self, networks: Sequence[nn.Module]):
        super().__init__()
        self.body = copy.deepcopy(networks[0])
        self.body.reset_classifier(0)
        self.heads = nn.ModuleList(copy.deepcopy(head_of(network)) for network in networks)
        parts = [dict(network.named_modules()) for network in networks]
        for name, layer in self.body.named_modules():
            if any(True for _ in (*layer.parameters(recurse=False), *layer.buffers(recurse=False))):
                _widen(layer, [part[name] for part in parts])

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        features = self.body(images).unflatten(1, (len(self.heads), -1))
        return [head(one) for head, one in zip(self.heads, features.unbind(1), strict=True)]

    @torch.no_grad()
    def unload(self, networks: Sequence[nn.Module]) -> None:
        """Copy each network's weights and moments back to it."""
        for number, network in enumerate(networks):
            head_of(network).load_state_dict(self.heads[number].state_dict())
            layers = dict(network.named_modules())
            for name, layer in self.body.named_modules():
                for key, wide in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)):
                    own = getattr(layers[name], key)
                    own.copy_(wide if wide.dim() == 0 else wide.unflatten(0, (len(networks), -1))[number])


def fits(network: nn.Module, images: torch.Tensor, size: int, recipe: Recipe) -> bool:
    """Return whether stacks reproduce a network's outputs for a batch, float32 [B, C, H, W], and their gradients depend
    neither on their size (an even number) nor on the network's place. False for dropout, layers of other kinds, or
    numbers of channels such as 12.
    """
    network = copy.deepcopy(network)
    if not recipe.dropout:
        remove_dropout(network)
    try:
        alone = copy.deepcopy(network).train()(images)
        outputs, gradients = _tried(network, images, 2, 0)
        trials = [_tried(network, images, many, place)[1] for many in {4, size + size % 2} for place in {0, many - 1}]
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError):
        return False
    if alone.shape != outputs.shape or (alone - outputs).abs().max() > SAME * alone.abs().max().clamp_min(1):
        return False
    return all(torch.equal(gradient, part) for parts in trials for gradient, part in zip(gradients, parts, strict=True))


def _tried(network: nn.Module, images: torch.Tensor, size: int, place: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return outputs and gradients of a network in a stack of its copies."""
    stacked = Stack([network] * size).train()
    outputs = stacked(torch.cat([images] * size, 1))
    sum(one.square().mean() for one in outputs).backward()
    gradients = [one.grad.unflatten(0, (size, -1))[place] for one in stacked.body.parameters()]
    return outputs[place].detach(), gradients + [one.grad for one in stacked.heads[place].parameters()]


def size_of(network: nn.Module, image: torch.Tensor, recipe: Recipe) -> int:
    """Return the most networks that are worth stacking; `image` is one input, float32 [1, C, H, W]."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.eval()(image)
    kind = image.device.type
    return max(1, min(MOST[kind], int(WORK[kind] / max(1, counter.get_total_flops() * recipe.batch_size))))


def train_together(
    networks: Sequence[nn.Module],
    data: Sequence[Data],
    objectives: Sequence[Any],
    recipe: Recipe,
    seeds: Sequence[int],
    checkpoint: Path | None,
    after_epoch: Callable[[int], None],
) -> list[list[dict[str, Any]]]:
    """Train networks together, each as :func:`.trainings.train` would; return their histories.

    For an odd number, a copy of the first is added, because oneDNN computes differently for one or three groups.
    """
    if len(networks) % 2:
        copies = [*networks, copy.deepcopy(networks[0])]
        inputs = ([*item, item[0]] for item in (data, objectives))
        return train_together(copies, *inputs, recipe, [*seeds, seeds[0]], checkpoint, after_epoch)[:-1]
    for network in networks if not recipe.dropout else ():
        remove_dropout(network)
    stacked = Stack(networks).to(data[0].device)
    batches = {seed: Batches(len(data[0].train), recipe.batch_size, seed) for seed in seeds}
    per_epoch = batches[seeds[0]].per_epoch
    # Networks with the same seed see the same images, which are read once.
    keys = [(seed, *(values.tobytes() for values in item.moments)) for seed, item in zip(seeds, data, strict=True)]
    feeds = {
        key: item.feed(batches[key[0]], recipe.epochs * per_epoch, recipe.augment, key[0])
        for key, item in zip(keys, data, strict=True)
    }

    def gradients_at(step: int) -> torch.Tensor:
        images = {key: feed(step) for key, feed in feeds.items()}
        with computing(recipe.precision, data[0].device):
            outputs = stacked(torch.cat([images[key] for key in keys], 1))
        picked = {seed: item(step) for seed, item in batches.items()}
        terms = zip(objectives, outputs, seeds, strict=True)
        losses = torch.stack([objective.loss(item.float(), picked[seed]) for objective, item, seed in terms])
        losses.sum().backward()
        return losses.detach()

    def unloaded(epoch: int) -> None:
        stacked.unload(networks)
        after_epoch(epoch)

    history = minimise(stacked, recipe, gradients_at, per_epoch, seeds[0], checkpoint, unloaded)
    stacked.unload(networks)
    for network in networks:
        network.eval()
    return [[row | {"train_loss": row["train_loss"][i]} for row in history] for i in range(len(networks))]


def _widen(layer: nn.Module, parts: Iterable[nn.Module]) -> None:
    """Turn a layer into the stacked one of all networks, whose own layers are `parts`."""
    kind = next((kind for kind in TENSORS if isinstance(layer, kind)), None)
    if kind is None:
        raise TypeError(f"layers of type {type(layer).__name__} cannot be stacked")
    parts = list(parts)
    for key in TENSORS[kind]:
        if getattr(layer, key) is not None:
            wide = torch.cat([getattr(part, key).detach() for part in parts])
            if wide.dim() == 4:
                wide = wide.contiguous(memory_format=torch.channels_last)
            setattr(layer, key, nn.Parameter(wide) if key in ("weight", "bias") else wide)
    if isinstance(layer, nn.Conv2d):
        layer.groups, layer.in_channels, layer.out_channels = (
            len(parts) * count for count in (layer.groups, layer.in_channels, layer.out_channels)
        )
