"""Mask-reconstruction pretraining on multi-view data. Read `model` first."""

from granularity.stages.theory.worlds.mask_reconstruction.claims import figures, judge
from granularity.stages.theory.worlds.mask_reconstruction.identities import simulate
from granularity.stages.theory.worlds.mask_reconstruction.settings import SIZES, Settings

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
