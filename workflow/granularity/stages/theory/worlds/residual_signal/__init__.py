"""Finding: does residual first-order signal order the label spaces of every world? Extends four worlds.

Beside each arm stands what is known of its label space before training (`law`), computed from the world's own data
(`spaces`). Predictions, bands and arms are in `config/preregistrations/residual_signal.yaml`.
"""

from granularity.stages.theory.worlds.residual_signal.arms import SIZES, Settings, simulate
from granularity.stages.theory.worlds.residual_signal.claims import figures, judge

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
