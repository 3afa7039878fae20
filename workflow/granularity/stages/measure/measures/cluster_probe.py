"""Cluster-and-Linear-Probe: whether clusters of the features within coarse classes match the fine classes.

Source: Yang, Steinhardt and Hu 2023, section 4.3. The first of `ranks` gives the coarse classes, the last the fine
ones. Within each coarse class the training images' features are embedded in the plane (t-SNE) and clustered (k-means)
into as many clusters as it has fine classes; a linear probe of the features learns the clusters. Errors are in percent,
and depend on which fine class each cluster stands for:

- `error`: by the assignment of clusters to fine classes that is best on the split itself, as in the paper;
- `error_in_coarse`: by the best assignment that keeps coarse classes;
- `error_of_majority`: a cluster stands for the fine class of most of its training images;
- `error_of_labels`: of a linear probe that learns the fine classes directly.

For the split `train`: `purity`, the percentage of training images in their cluster's majority class; `purity_null`, the
same with fine labels shuffled within each coarse class; `plane`, an array float32 [training images, 2], the t-SNE of
each coarse class; NaN in one of a single fine class.
"""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.base.seeds import seed_of

LEAST_RANKS = 2


class Options(Section):
    l2: list[Annotated[float, Field(gt=0)]] = Field(
        [1e-4, 1e-2, 1.0], min_length=1, description="L2 penalties of the linear probes, as in `probe`."
    )
    perplexity: Annotated[float, Field(ge=1)] = Field(30, description="Perplexity of t-SNE.")


def measure(view, options: Options, seed: int) -> Iterator[tuple[str, str, object]]:
    import torch

    from granularity.learning.training.evaluation import percent_wrong
    from granularity.stages.measure.measures.collapse import shuffled
    from granularity.stages.measure.measures.probe import linear_probes

    coarse, fine = (view.labels("train", rank) for rank in (view.ranks[0], view.ranks[-1]))
    pairs, classes = len(np.unique(np.stack([coarse, fine]), axis=1).T), len(np.unique(fine))
    if pairs > classes or classes == len(np.unique(coarse)):
        raise GranularityError(
            f"ranks: cluster_probe looks for the classes of the last rank, '{view.ranks[-1]}', within those of the "
            f"first, '{view.ranks[0]}', but they do not divide these; name a coarser and a finer rank"
        )
    train, tests = view.features("train"), [view.features(split) for split in view.splits]
    assignment, plane = clusters(train.numpy(), coarse, fine, options.perplexity, seed_of(seed, "cluster_probe"))
    counts = int(assignment.max()) + 1, classes
    targets = [torch.from_numpy(assignment), torch.from_numpy(fine)]
    probes = linear_probes(train, targets, tests, counts, options.l2, seed_of(seed, "probe"), view.data.device)
    null = shuffled(fine, coarse, np.random.default_rng(seed_of(seed, "cluster_probe", "null")))
    table = confusion(assignment, fine, *counts)
    yield "train", "purity", 100 * table.max(1).sum() / len(fine)
    yield "train", "purity_null", 100 * confusion(assignment, null, *counts).max(1).sum() / len(fine)
    yield "train", "plane", plane
    first = np.unique(assignment, return_index=True)[1]
    within = coarse[first][:, None] == coarse[np.unique(fine, return_index=True)[1]][None, :]
    for i, split in enumerate(view.splits):
        truth = view.labels(split, view.ranks[-1])
        from_clusters, from_labels = (probe[0][i].numpy() for probe in probes)
        of_split = confusion(from_clusters[truth >= 0], truth[truth >= 0], *counts)
        maps = {"error": assigned(of_split), "error_in_coarse": assigned(of_split, within)}
        maps["error_of_majority"] = table.argmax(1)
        for key, stands_for in maps.items():
            yield split, key, percent_wrong(stands_for[from_clusters], truth)
        yield split, "error_of_labels", percent_wrong(from_labels, truth)


def clusters(
    features: np.ndarray, coarse: np.ndarray, fine: np.ndarray, perplexity: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cluster features [N, D] in each coarse class, into as many clusters as it has fine classes: int64 [N]; and the
    plane in which they are clustered, float32 [N, 2].
    """
    from sklearn.cluster import KMeans
    from sklearn.manifold import TSNE

    numbers, count = np.empty(len(features), dtype=np.int64), 0
    plane = np.full((len(features), 2), np.nan, dtype=np.float32)
    for coarse_class in np.unique(coarse):
        images = np.flatnonzero(coarse == coarse_class)
        parts = len(np.unique(fine[images]))
        ids = np.zeros(len(images), dtype=np.int64)
        if parts > 1:
            tsne = TSNE(perplexity=min(perplexity, (len(images) - 1) / 3), random_state=seed % 2**32, n_jobs=1)
            plane[images] = tsne.fit_transform(features[images])
            ids = KMeans(parts, n_init=10, random_state=seed % 2**32).fit_predict(plane[images])
        numbers[images] = count + ids
        count += parts
    return numbers, plane


def confusion(found: np.ndarray, truth: np.ndarray, clusters: int, classes: int) -> np.ndarray:
    """Count the images of each class [N] in each cluster [N]: int64 [clusters, classes]."""
    return np.bincount(found * classes + truth, minlength=clusters * classes).reshape(clusters, classes)


def assigned(table: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
    """Return the class of each cluster, [clusters], in the one-to-one (`allowed`) assignment of the most images."""
    from scipy.optimize import linear_sum_assignment

    cost = -table if allowed is None else np.where(allowed, -table, table.sum() + 1)
    return linear_sum_assignment(cost)[1]
