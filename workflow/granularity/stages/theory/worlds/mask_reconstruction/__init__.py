"""Mask-reconstruction pretraining on multi-view data: `model` is the file to read first."""

from granularity.stages.theory.worlds.mask_reconstruction.arms import ARMS
from granularity.stages.theory.worlds.mask_reconstruction.claims import judge
from granularity.stages.theory.worlds.mask_reconstruction.figures import figures
from granularity.stages.theory.worlds.mask_reconstruction.identities import identities as _identities
from granularity.stages.theory.worlds.mask_reconstruction.model import simulate as _train
from granularity.stages.theory.worlds.mask_reconstruction.settings import Settings

SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}


def simulate(runs, device):
    """Train a group of runs, or measure the model's identities, and return the rows (see `engine`)."""
    if runs[0].settings.task == "identities":
        return [row for run in runs for row in _identities(run)]
    return _train(runs, device)


__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
