"""World 4: features that say nothing of the label are learnt, and fail us. Read `model` first."""

from granularity.stages.theory.worlds.feature_contamination.claims import figures, judge
from granularity.stages.theory.worlds.feature_contamination.measures import simulate
from granularity.stages.theory.worlds.feature_contamination.settings import SIZES, Settings

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
