"""World 3: features emerge where inputs have structure. `model` is the file to read first."""

from granularity.stages.theory.worlds.feature_emergence.arms import ARMS
from granularity.stages.theory.worlds.feature_emergence.claims import judge
from granularity.stages.theory.worlds.feature_emergence.figures import figures
from granularity.stages.theory.worlds.feature_emergence.model import simulate
from granularity.stages.theory.worlds.feature_emergence.settings import Settings

SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
