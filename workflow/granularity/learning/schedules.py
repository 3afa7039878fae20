"""Schedules: the share of the peak learning rate at each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from granularity.learning.options import Recipe


def schedule(recipe: Recipe, steps_per_epoch: int) -> Callable[[int, int, float], float]:
    return partial(
        share_of_peak,
        hold=recipe.hold_epochs * steps_per_epoch,
        shape=recipe.schedule,
        final=recipe.final_lr / recipe.lr,
        every=recipe.step_epochs * steps_per_epoch,
        factor=recipe.step_factor,
    )


def share_of_peak(
    step: int,
    steps: int,
    warmup: float,
    hold: float = 0.0,
    shape: str = "cosine",
    final: float = 0.0,
    every: float = 1.0,
    factor: float = 1.0,
) -> float:
    """Share of the peak learning rate at a step: linear over `warmup` steps, the peak for `hold` steps, then down.

    Args:
        shape: `cosine` (half a period) or `linear`, from the peak to the share `final` at step `steps`; or `step`:
            times `factor` every `every` steps, not below `final`.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = max(0.0, step - warmup - hold)
    if shape == "step":
        return max(final, factor ** (done // every))
    whole = max(1.0, steps - warmup - hold)
    left = 1 - done / whole if shape == "linear" else 0.5 * (1 + math.cos(math.pi * done / whole))
    return final + (1 - final) * left
