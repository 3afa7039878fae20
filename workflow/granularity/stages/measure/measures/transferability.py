"""Scores that predict, before finetuning, how well features serve a rank: higher is better.

For a split with N images, their features [N, D] and the classes of a rank:

- `RANK/logme`: the largest evidence, per image, of a Bayesian linear regression of a class's indicator on the features,
  averaged over classes (You, Liu, Wang and Long 2021, algorithm 1);
- `RANK/h_score`: Tr(pinv(cov(f)) cov(E[f | y])) (Bao et al. 2019, definition 2);
- `RANK/leep`: the mean log-probability of an image's class, where the head's softmax gives its pretraining label z and
  p(y | z) is counted on the same images (Nguyen et al. 2020, equation 2); `RANK/nce`: the same with the head's most
  probable label as z, which is minus the conditional entropy H(Y | Z) (Tran, Nguyen and Hassner 2019). Both are in
  nats, and missing without a head, as for the embedding.

Images whose class is not in the training split do not count. A rank with one class in the split has no row.
"""

from collections.abc import Iterator

import numpy as np

from granularity.base.section import Section

Options = Section


def measure(view, options: Options, seed: int) -> Iterator[tuple[str, str, float]]:
    for split in view.splits:
        features, heads = view.features(split).numpy().astype(np.float64), None
        if view.answers is not None:
            heads = view.predict(split, lambda images: view.network(images).softmax(1)).numpy()
        for rank in view.ranks:
            label = view.labels(split, rank)
            labelled = label >= 0
            classes, label = np.unique(label[labelled], return_inverse=True)
            if len(classes) < 2:
                continue
            yield split, f"{rank}/logme", logme(features[labelled], label)
            yield split, f"{rank}/h_score", h_score(features[labelled], label)
            if heads is not None:
                known = heads if labelled.all() else heads[labelled]  # as large as all that the head says
                yield split, f"{rank}/leep", leep(known, label)
                yield split, f"{rank}/nce", nce(known.argmax(1), label)


def logme(features: np.ndarray, label: np.ndarray) -> float:
    """Return the evidence per image of features [N, D] for labels [N] (numbers from 0), averaged over classes."""
    from sklearn.linear_model import BayesianRidge

    flat = dict.fromkeys(("alpha_1", "alpha_2", "lambda_1", "lambda_2"), 0.0)  # flat priors of the precisions
    fits = (
        BayesianRidge(compute_score=True, fit_intercept=False, **flat).fit(features, (label == code).astype(np.float64))
        for code in range(label.max() + 1)
    )
    return float(np.mean([fit.scores_[-1] / len(label) for fit in fits]))


def h_score(features: np.ndarray, label: np.ndarray) -> float:
    """Return the H-score of features [N, D] for labels [N], numbers from 0."""
    centred = features - features.mean(0)
    count = np.bincount(label)
    means = np.stack([centred[label == code].mean(0) for code in range(len(count))])
    covariance = centred.T @ centred
    return float(np.trace(np.linalg.pinv(covariance, hermitian=True) @ (means.T * count) @ means))


def leep(probabilities: np.ndarray, label: np.ndarray) -> float:
    """Return the LEEP score of a head's probabilities [N, Z] for labels [N], numbers from 0."""
    joint = np.stack([probabilities[label == code].sum(0, dtype=np.float64) for code in range(label.max() + 1)])
    conditional = joint / np.maximum(joint.sum(0), np.finfo(np.float64).tiny)
    # Class by class, because another copy of all probabilities may not fit in memory.
    own = [probabilities[label == code] @ one for code, one in enumerate(conditional)]
    return float(np.log(np.concatenate(own)).mean())


def nce(source: np.ndarray, label: np.ndarray) -> float:
    """Return the NCE score of pretraining labels [N] for labels [N]."""
    found, source = np.unique(source, return_inverse=True)
    joint = np.zeros((len(found), label.max() + 1))
    np.add.at(joint, (source, label), 1)
    return float(np.log((joint / joint.sum(1, keepdims=True))[source, label]).mean())
