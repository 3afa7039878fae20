"""Torch's AdamW."""

import torch


def make(parameters, recipe, common, fast):
    return torch.optim.AdamW(parameters, **{**fast, **common})
