"""World 4: features that say nothing of the label are learnt, and fail us. Read `model` first."""

from granularity.stages.theory.feature_contamination.claims import ARMS, checks
from granularity.stages.theory.feature_contamination.figures import figures
from granularity.stages.theory.feature_contamination.model import simulate
from granularity.stages.theory.feature_contamination.settings import Settings

SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}

__all__ = ["SIZES", "Settings", "checks", "figures", "simulate"]
