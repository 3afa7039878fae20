"""World 1: what fine labels teach that coarse labels do not. `model` is the file to read first."""

from granularity.stages.theory.worlds.label_granularity.arms import ARMS
from granularity.stages.theory.worlds.label_granularity.claims import judge
from granularity.stages.theory.worlds.label_granularity.figures import figures
from granularity.stages.theory.worlds.label_granularity.model import simulate
from granularity.stages.theory.worlds.label_granularity.settings import Settings

SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
