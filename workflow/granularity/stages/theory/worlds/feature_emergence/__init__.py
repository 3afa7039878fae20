"""World 3: features emerge if inputs have structure. Read `model` first."""

from granularity.stages.theory.worlds.feature_emergence.claims import COLUMNS, figures, judge
from granularity.stages.theory.worlds.feature_emergence.model import simulate
from granularity.stages.theory.worlds.feature_emergence.settings import SIZES, Settings

__all__ = ["COLUMNS", "SIZES", "Settings", "figures", "judge", "simulate"]
