"""Collapse of features: distances between images of one class, relative to distances between classes, per human rank.

For a split, with float64 means mu and covariances S (divisor n) of a rank's C classes, in features of D dimensions:

- `RANK/nc1`: (1/C) Tr(S_W pinv(S_B)); `RANK/nc2`: the distance of the means' normalised Gram matrix from a simplex's
  (Frobenius). Papyan, Han and Donoho 2020; Yang, Steinhardt and Hu 2023, section 3. If C - 1 > D, `nc2` cannot fall
  below sqrt(2 - 2 sqrt(D / (C - 1))).
- `RANK/cdnv`: class-distance normalised variance, the mean of (tr S_i + tr S_j) / (2 |mu_i - mu_j|^2) over pairs
  (Galanti, Gyorgy and Hutter 2021).
- `RANK/nearest_mean`: the error in percent of the nearest class mean of the training split.
- `RANK/distances`: an array [C, C], the mean squared distance between images of two classes, D_ij = tr S_i + tr S_j +
  |mu_i - mu_j|^2, including each image's distance from itself (Yang et al., section 4.1).
- `COARSE/FINE/r1`, `r2`, `r3`, for any two ranks of which the finer divides classes of the coarser. With d_in, d_sup
  and d_far the means of D_ii, of D_ij within a coarse class, and of D_ij across coarse classes: d_sup / d_in (the mean
  squared distance ratio of Yang et al., defined there for Gaussian mixtures only), d_sup / d_far and d_in / d_far (not
  in Yang et al.). `r1_null`: the largest r1 of 20 shuffles of the fine labels within coarse classes; any labels give
  an r1 of at least 1.
- `effective_rank`: the exponential of the entropy of the covariance's eigenvalues (Roy and Vetterli 2007).

A rank with fewer than two classes in the split has no row.
"""

from collections.abc import Iterator

import numpy as np

from granularity.base.section import Section
from granularity.base.seeds import seed_of

SHUFFLES = 20  # of the fine labels, for `r1_null`

Options = Section


def measure(view, options: Options, seed: int) -> Iterator[tuple[str, str, object]]:
    from granularity.learning.training.evaluation import percent_wrong

    train = view.features("train").numpy().astype(np.float64)
    centres = {
        rank: moments(train, view.labels("train", rank))[0] for rank in view.ranks
    }  # in the order of the classes
    for split in view.splits:
        features = view.features(split).numpy().astype(np.float64)
        yield split, "effective_rank", effective_rank(features)
        labels = {rank: view.labels(split, rank) for rank in view.ranks}
        for rank, label in labels.items():
            if len(np.unique(label[label >= 0])) < 2:
                continue
            means, within = moments(features, label)
            yield split, f"{rank}/nc1", nc1(means, pooled(features, label, means))
            yield split, f"{rank}/nc2", nc2(means)
            yield split, f"{rank}/cdnv", cdnv(means, within)
            yield split, f"{rank}/distances", distances(means, within)
            yield split, f"{rank}/nearest_mean", percent_wrong(closest(features, centres[rank]), label)
            for coarse in (one for one in view.ranks if one != rank):
                labelled = label >= 0
                parts = features[labelled], label[labelled], labels[coarse][labelled]
                if (values := ratios(*parts, seed_of(seed, "collapse", coarse, rank))) is not None:
                    yield from ((split, f"{coarse}/{rank}/{key}", value) for key, value in values.items())


def moments(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means [C, D] and covariance traces [C] of the classes in `labels` [N], in order; negative: no class."""
    classes = np.unique(labels[labels >= 0])
    parts = [features[labels == label] for label in classes]
    means = np.stack([part.mean(0) for part in parts])
    within = np.array([np.square(part - mean).sum(1).mean() for part, mean in zip(parts, means, strict=True)])
    return means, within


def pooled(features: np.ndarray, labels: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the mean of the classes' covariances, S_W [D, D]."""
    covariance = np.zeros((features.shape[1],) * 2)
    for label, mean in zip(np.unique(labels[labels >= 0]), means, strict=True):
        centred = features[labels == label] - mean
        covariance += centred.T @ centred / len(centred)
    return covariance / len(means)


def nc1(means: np.ndarray, within: np.ndarray) -> float:
    """Return (1/C) Tr(S_W pinv(S_B)), by singular vectors of the centred means [C, D]; infinite if all are equal."""
    _, sizes, directions = np.linalg.svd(means - means.mean(0), full_matrices=False)
    kept = sizes > sizes[0] * 1e-10
    if not sizes[0]:
        return float("inf")
    return float(sum(v @ within @ v / s**2 for s, v in zip(sizes[kept], directions[kept], strict=True)))


def nc2(means: np.ndarray) -> float:
    """Return the distance of the Gram matrix of the centred means [C, D], of norm 1, from a simplex's."""
    centred, count = means - means.mean(0), len(means)
    gram = centred @ centred.T
    simplex = (np.eye(count) - 1 / count) / np.sqrt(count - 1)
    return float(np.linalg.norm(gram / np.linalg.norm(gram) - simplex))


def between(means: np.ndarray) -> np.ndarray:
    """Return the squared distances of the means [C, D]: [C, C]."""
    return np.stack([np.square(means - mean).sum(1) for mean in means])


def distances(means: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return D [C, C] from means [C, D] and traces [C]: exact, including the distance of an image from itself."""
    return within[:, None] + within[None, :] + between(means)


def cdnv(means: np.ndarray, within: np.ndarray) -> float:
    upper = np.triu_indices(len(means), 1)
    return float(np.mean((within[:, None] + within[None, :])[upper] / (2 * between(means)[upper])))


def closest(features: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the index of the nearest centre [C, D] for each row of features [N, D]: [N]."""
    return np.argmin(np.square(centres).sum(1) - 2 * features @ centres.T, axis=1)


def ratios(features: np.ndarray, fine: np.ndarray, coarse: np.ndarray, seed: int) -> dict[str, float] | None:
    """Return r1, r2, r3 and r1_null of a rank in a coarser one; None if it is not nested in it, divides no class,
    or has no class with two different images.
    """
    classes, first = np.unique(fine, return_index=True)
    above = coarse[first]
    if not np.array_equal(above[np.searchsorted(classes, fine)], coarse):
        return None
    same = above[:, None] == above[None, :]
    siblings, far = same & ~np.eye(len(classes), dtype=bool), ~same
    if not siblings.any() or not far.any():
        return None

    def averages(labels: np.ndarray) -> tuple[float, float, float]:
        means, within = moments(features, labels)
        matrix = distances(means, within)
        return float(np.diag(matrix).mean()), float(matrix[siblings].mean()), float(matrix[far].mean())

    inside, sibling, distant = averages(fine)
    if not inside:
        return None
    rng, null = np.random.default_rng(seed), []
    for _ in range(SHUFFLES):
        spread, near, _ = averages(shuffled(fine, coarse, rng))
        null.append(near / spread)
    return {"r1": sibling / inside, "r2": sibling / distant, "r3": inside / distant, "r1_null": max(null)}


def shuffled(fine: np.ndarray, coarse: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shuffle fine labels [N] within each coarse class."""
    labels = fine.copy()
    for coarse_class in np.unique(coarse):
        images = np.flatnonzero(coarse == coarse_class)
        labels[images] = fine[rng.permutation(images)]
    return labels


def effective_rank(features: np.ndarray) -> float:
    shares = np.linalg.eigvalsh(np.cov(features, rowvar=False)).clip(0)
    shares = shares[shares > 0] / shares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
