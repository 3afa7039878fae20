"""Torch's SGD, with the recipe's `momentum` and `nesterov`."""

import torch


def make(parameters, recipe, common, fast):
    return torch.optim.SGD(parameters, momentum=recipe.momentum, nesterov=recipe.nesterov, **{**fast, **common})
