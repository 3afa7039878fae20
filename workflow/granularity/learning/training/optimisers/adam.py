"""Torch's Adam."""

import torch


def make(parameters, recipe, common, fast):
    return torch.optim.Adam(parameters, fused=True, **common)  # fused: MKL's sqrt differs between processors
