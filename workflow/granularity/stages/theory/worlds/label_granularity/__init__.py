"""World 1: what fine labels teach that coarse labels do not. `model` is the file to read first."""

from granularity.stages.theory.worlds.label_granularity.claims import figures, judge
from granularity.stages.theory.worlds.label_granularity.model import simulate
from granularity.stages.theory.worlds.label_granularity.settings import SIZES, Settings

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
