"""World 4: features that say nothing of the label are learnt, and fail us. Read `model` first."""

from granularity.stages.theory.worlds.feature_contamination.arms import ARMS
from granularity.stages.theory.worlds.feature_contamination.claims import judge
from granularity.stages.theory.worlds.feature_contamination.figures import figures
from granularity.stages.theory.worlds.feature_contamination.model import simulate
from granularity.stages.theory.worlds.feature_contamination.settings import Settings

SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
