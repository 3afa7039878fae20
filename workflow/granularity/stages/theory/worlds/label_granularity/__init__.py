"""World 1: what fine labels teach that coarse labels do not. Read `model` first."""

from granularity.stages.theory.worlds.label_granularity.claims import COLUMNS, figures, judge
from granularity.stages.theory.worlds.label_granularity.model import simulate
from granularity.stages.theory.worlds.label_granularity.settings import SIZES, Settings

__all__ = ["COLUMNS", "SIZES", "Settings", "figures", "judge", "simulate"]
