"""Objective `mask`: predict the pixels of masked patches from the rest of the image, without any labels.

As in SimMIM (Xie et al. 2022): the same number of square patches, chosen at random, is masked in every image; a 1x1
convolution and a pixel shuffle predict the image from the network's last feature map; the loss is the mean absolute
difference over the masked pixels. Because a convolutional network has no token for a masked patch, its normalised
pixels are set to zero. The 1x1 convolution is the network's head, at every position of the map: finetuning replaces
it like any head. Masks are drawn like dropout, from torch's generator, which the loop seeds by seed and step.
"""

import math
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Count, Section, Share

NEEDS = "pixels"


class Options(Section):
    mask_ratio: Share = Field(0.6, description="Share of an image's patches that are masked, rounded up.")
    mask_patch_size: Count = Field(
        4, description="Side of a patch in pixels; the side of the images must be a multiple."
    )
    encoder_stride: Count = Field(
        4, description="Side, in pixels, of the area that a position of the network's last feature map covers."
    )


def describe(source, recipe, options: Options) -> dict:
    """Return the family `mask`, without classes. Raise GranularityError if the recipe's loss is for classes."""
    if recipe.loss != "auto":
        raise GranularityError(f"pretrain.loss = {recipe.loss}: works only for labels; objective mask has its own loss")
    return {"family": "mask", "granularity": None}


def check(network, images, options: Options) -> None:
    """Raise GranularityError if images like these, float32 [1, C, H, H], cannot be masked with the options, or
    predicted from the network's last feature map.
    """
    from granularity.learning.networks.network import head_of

    side, patch, at = images.shape[-1], options.mask_patch_size, "objective.options"
    if side % patch:
        raise GranularityError(f"{at}.mask_patch_size: {patch} does not divide the side of the images, {side} px")
    if masked_patches(side, options) == (side // patch) ** 2:
        patches = f"all patches ({(side // patch) ** 2} of {patch} px)"
        raise GranularityError(f"{at}.mask_ratio: {options.mask_ratio:g} masks {patches}; lower it or mask_patch_size")
    maps = network.forward_features(images)
    if maps.dim() != 4 or maps.shape[1] != getattr(head_of(network), "in_features", None):
        raise GranularityError("objective.name: mask needs a network whose head reads the pooled last feature map")
    if {size * options.encoder_stride for size in maps.shape[2:]} != {side}:
        reason = f"images of {side} px have a last feature map of {maps.shape[2]} x {maps.shape[3]} positions"
        requirement = f"{options.encoder_stride} must be {side / maps.shape[2]:g}"
        raise GranularityError(f"{at}.encoder_stride: {requirement}, because {reason}")


def masked_patches(side: int, options: Options) -> int:
    """Return how many patches of an image of a given side are masked."""
    return math.ceil((side // options.mask_patch_size) ** 2 * options.mask_ratio)


def masks(images: int, side: int, options: Options, generator=None):
    """Draw the masked pixels of images: bool [B, 1, side, side] on the CPU."""
    import torch

    patch, across = options.mask_patch_size, side // options.mask_patch_size
    chosen = torch.rand(images, across**2, generator=generator).argsort(dim=1, stable=True)
    chosen = chosen[:, : masked_patches(side, options)]
    hidden = torch.zeros(images, across**2, dtype=torch.bool).scatter_(1, chosen, True).view(images, 1, across, across)
    return hidden.repeat_interleave(patch, 2).repeat_interleave(patch, 3)


def errors(network, options: Options, images, generator=None):
    """Return the mean absolute difference over each image's masked pixels between them and the network's prediction
    (zeros without a network): float32 [B, 1].
    """
    from torch.nn.functional import pixel_shuffle

    hidden = masks(len(images), images.shape[-1], options, generator).to(images.device)
    prediction = 0
    if network is not None:
        maps = network.forward_features(images.masked_fill(hidden, 0))
        answers = network.get_classifier()(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        prediction = pixel_shuffle(answers, options.encoder_stride).float()
    difference = ((prediction - images).abs() * hidden).sum((1, 2, 3)) / (hidden.sum((1, 2, 3)) * images.shape[1])
    return difference[:, None]


def make(source, data, recipe, options: Options):
    """Return a reconstruction of masked pixels; `outputs` are the pixels per position of the last feature map.
    `evaluate` returns `val_loss` on validation images, with the same masks for every network, and `val_loss_of_zeros`,
    for predicting the mean colour everywhere; there is no error.
    """
    import torch

    from granularity.learning.training.evaluation import predict

    def attach(network) -> None:
        side = recipe.augment.crop or data.side
        # Images that the network cannot take at all are reported by the trainings.
        with torch.no_grad(), suppress(RuntimeError, ValueError, AssertionError, TypeError, AttributeError):
            check(network.eval(), torch.zeros(1, data.channels, side, side), options)
        network.forward = partial(errors, network, options)

    def mean(of) -> float:
        forward = partial(errors, of, options, generator=torch.Generator().manual_seed(0))
        return float(predict(forward, data, data.val, recipe.augment, recipe.precision).mean())

    def evaluate(network):
        return {"val_error": None, "val_loss": mean(network), "val_loss_of_zeros": mean(None)}, {}

    def loss(outputs, picked):
        return outputs.mean()

    pixels = options.encoder_stride**2 * data.channels
    return SimpleNamespace(outputs=pixels, attach=attach, loss=loss, evaluate=evaluate)
