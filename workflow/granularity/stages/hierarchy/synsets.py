"""Label spaces made from WordNet.

Source: Hong et al., ImageNet21k experiments: level k is the k-th synset on the path from a label to its root, or the
root of a shorter path. A synset may have several paths: an image carries the union (docs/label_spaces.md).
"""

from __future__ import annotations

import numpy as np

from granularity.base.errors import GranularityError
from granularity.data.wordnet import SEPARATOR
from granularity.stages.hierarchy.labels import Labels, Training

SYNSET = "synset"


def wordnet(training: Training, level: int) -> Labels:
    """The synsets `level` steps above each image's own: one, or several where paths or labels do not agree."""
    if training.graph is None or SYNSET not in training.frame:
        raise GranularityError(f"label_spaces.wordnet: needs samples.wordnet and the rank '{SYNSET}' in samples.ranks")
    column = training.frame[SYNSET].cat.remove_unused_categories()
    sets = [
        sorted(frozenset().union(*(training.graph.level(synset, level) for synset in str(name).split(SEPARATOR))))
        for name in column.cat.categories
    ]
    classes = sorted({synset for one in sets for synset in one})
    number = {synset: i for i, synset in enumerate(classes)}
    names = [training.graph.label(synset) for synset in classes]
    values = np.array([number[synset] for one in sets for synset in one], dtype=np.int32)
    sizes = np.array([len(one) for one in sets], dtype=np.int64)
    codes = column.cat.codes.to_numpy()
    if (sizes == 1).all():
        return Labels(values[codes], names)
    offsets = np.concatenate([[0], np.cumsum(sizes[codes])])
    # The pairs of image i are those of its set: consecutive values from where the set begins.
    begin = (np.cumsum(sizes) - sizes)[codes]
    pairs = np.repeat(begin - offsets[:-1], sizes[codes]) + np.arange(offsets[-1])
    return Labels(values[pairs], names, offsets)
