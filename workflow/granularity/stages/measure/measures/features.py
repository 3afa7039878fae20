"""The features themselves, for work outside the workflow: the input of a network's head, or rows of the embedding.

Key: `features`, an array float32 [images of the split, D], in the order of the sample table.
"""

from granularity.base.section import Section

Options = Section


def measure(view, options: Options, seed: int):
    for split in view.splits:
        yield split, "features", view.features(split).numpy()
