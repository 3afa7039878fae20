"""World 3: features emerge where inputs have structure. `model` is the file to read first."""

from granularity.stages.theory.worlds.feature_emergence.claims import figures, judge
from granularity.stages.theory.worlds.feature_emergence.model import simulate
from granularity.stages.theory.worlds.feature_emergence.settings import SIZES, Settings

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
