"""Error, collapse and cluster purity of one network, in one job: the measures `accuracy` and `collapse`, and k-means.

`purity`: the percentage of images in the majority class of their cluster, when the features of each of the first of
`ranks` are clustered into as many clusters as it has classes of the last (k-means, without the t-SNE of
`cluster_probe`).
"""

from granularity.base.section import Section
from granularity.base.seeds import seed_of
from granularity.stages.measure.measures import accuracy, collapse
from granularity.stages.measure.measures.cluster_probe import confusion

EXTENDS = "measure"
Options = Section


def measure(view, options: Options, seed: int):
    import numpy as np
    from sklearn.cluster import KMeans

    yield from accuracy.measure(view, accuracy.Options(), seed)
    yield from collapse.measure(view, collapse.Options(), seed)
    for split in view.splits:
        features = view.features(split).numpy()
        coarse, fine = (view.labels(split, rank) for rank in (view.ranks[0], view.ranks[-1]))
        pure = 0
        for one in np.unique(coarse):
            own = np.flatnonzero(coarse == one)
            parts = len(np.unique(fine[own]))
            means = KMeans(parts, n_init=4, random_state=seed_of(seed, "purity") % 2**32)
            pure += confusion(means.fit_predict(features[own]), fine[own], parts, fine.max() + 1).max(1).sum()
        yield split, "purity", 100 * pure / len(fine)
