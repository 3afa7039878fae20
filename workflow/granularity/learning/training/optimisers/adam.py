"""Torch's Adam."""

import torch


def make(parameters, recipe, common, fast):
    return torch.optim.Adam(parameters, **{**fast, **common})
