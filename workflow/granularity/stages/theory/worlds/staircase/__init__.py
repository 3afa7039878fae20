"""Finding: which label spaces teach parity can be said before training. Extends the world `feature_emergence`.

Random refinements of parity on inputs without structure, each trained with several seeds; beside each the numbers that
`feature_emergence.spaces.law` knows of it. Predictions, bands and arms are in `config/preregistrations/staircase.yaml`.
"""

from granularity.stages.theory.worlds.feature_emergence.settings import Settings
from granularity.stages.theory.worlds.staircase.arms import SIZES, simulate
from granularity.stages.theory.worlds.staircase.claims import figures, judge

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
