"""The features themselves, for work outside the workflow: what a network's head sees, or rows of the embedding.

Key: `features`, an array float32 [images of the split, D], in the order of the sample table.

Other measures do not read it: a job computes the features of a split and network once, in one forward pass, where the
training before it made hundreds. To read them from here would save that pass to a second measure alone, and keep
gigabytes per network for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.base.section import Section

if TYPE_CHECKING:
    import numpy as np

    from granularity.stages.measure.view import View

Options = Section


def measure(view: View, options: Section, seed: int) -> Iterator[tuple[str, str, np.ndarray]]:
    for split in view.splits:
        yield split, "features", view.features(split).numpy()
