"""Class selectivity of units, per human rank: how far a unit prefers one class (Zhang et al. 2024, section 5, Fig. 5).

Units are the features that the head sees, or the embedding's dimensions. With mu_c a unit's mean over the images of
class c, the index is (max mu - mean mu) / (|max mu| + |mean mu| + 1e-6), with the mean over all classes. It ranges from
0 (classes are alike) to 1 - 2 / (C + 1) (the unit is active for only one of C classes), so indices are comparable at
one rank only. Morcos et al. 2018 take the mean over the other classes, which gives another scale. Activations need not
be positive (the paper uses the output of CLIP's attention pool), but a unit with means of both signs has a large index
whatever it prefers: compare with `null`.

For a split: `RANK/mean`, the mean over units, `RANK/null`, the same with labels shuffled among its images (mean of 10
shuffles), and `RANK/units`, an array [units]. A rank with fewer than two classes in the split has no row.
"""

from collections.abc import Iterator

import numpy as np

from granularity.base.section import Section
from granularity.base.seeds import seed_of

SHUFFLES = 10
SMALL = 1e-6  # from the paper

Options = Section


def measure(view, options: Options, seed: int) -> Iterator[tuple[str, str, object]]:
    for split in view.splits:
        features = view.features(split).numpy()
        for rank in view.ranks:
            labels = view.labels(split, rank)
            if len(np.unique(labels[labels >= 0])) < 2:
                continue
            selectivity = index(class_means(features, labels))
            yield split, f"{rank}/units", selectivity
            yield split, f"{rank}/mean", selectivity.mean()
            null = [
                index(class_means(features, draw)) for draw in shufflings(labels, seed_of(seed, "selectivity", rank))
            ]
            yield split, f"{rank}/null", np.mean(null)


def index(means: np.ndarray) -> np.ndarray:
    """Return the selectivity of each unit from its class means [C, units]; classes without images are NaN there."""
    top, mean = np.nanmax(means, 0), np.nanmean(means, 0)
    return (top - mean) / (np.abs(top) + np.abs(mean) + SMALL)


def class_means(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return means of values [N, units] over the images of each class 0, 1, ...: float64 [C, units]. Label -1 is no
    class; a class without images gets NaN.
    """
    means = np.full((labels.max() + 1, values.shape[1]), np.nan)
    for label in np.unique(labels[labels >= 0]):
        means[label] = values[labels == label].mean(0, dtype=np.float64)
    return means


def shufflings(labels: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """Yield `SHUFFLES` random permutations of labels [N]."""
    rng = np.random.default_rng(seed)
    yield from (rng.permutation(labels) for _ in range(SHUFFLES))
