"""World 3: features emerge where inputs have structure. `model` is the file to read first."""

from granularity.stages.theory.feature_emergence.claims import ARMS, checks
from granularity.stages.theory.feature_emergence.figures import figures
from granularity.stages.theory.feature_emergence.model import simulate
from granularity.stages.theory.feature_emergence.settings import Settings

SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}

__all__ = ["SIZES", "Settings", "checks", "figures", "simulate"]
