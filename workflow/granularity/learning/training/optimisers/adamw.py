"""Torch's AdamW."""

import torch


def make(parameters, recipe, common, fast):
    return torch.optim.AdamW(parameters, fused=True, **common)  # fused: MKL's sqrt differs between processors
