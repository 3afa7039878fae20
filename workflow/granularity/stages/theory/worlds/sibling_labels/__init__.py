"""Finding: sibling labels cure feature contamination. Extends the world `feature_contamination`.

A label's samples push its neurons up along the background, the samples that it rivals push them down. Where the
strongest rival is a sibling, both see the same neurons fire, and the two cancel. Predictions, bands and arms are in
`config/preregistrations/sibling_labels.yaml`.
"""

from granularity.claims import preregistered
from granularity.stages.theory.worlds.feature_contamination.model import simulate
from granularity.stages.theory.worlds.feature_contamination.settings import Settings
from granularity.stages.theory.worlds.sibling_labels.claims import NAME, figures, judge

_ARMS = preregistered.read(NAME)["arms"]
SIZES = {
    size: [Settings(name=name, **{**common, **arm}) for name, arm in _ARMS["settings"].items()]
    for size, common in _ARMS["sizes"].items()
}

__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
