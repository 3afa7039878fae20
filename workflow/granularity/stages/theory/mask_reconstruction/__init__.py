"""Mask-reconstruction pretraining on multi-view data: `model` is the file to read first."""

from granularity.stages.theory.mask_reconstruction.claims import ARMS, checks
from granularity.stages.theory.mask_reconstruction.figures import figures
from granularity.stages.theory.mask_reconstruction.model import simulate
from granularity.stages.theory.mask_reconstruction.settings import Settings

SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}

__all__ = ["SIZES", "Settings", "checks", "figures", "simulate"]
