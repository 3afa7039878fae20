"""Probes of a frozen network's features: what they say about the human ranks.

A linear probe (multinomial logistic regression, several L2 penalties along one warm-started path) and a kNN probe
(cosine similarity, votes weighted by exp(similarity / temperature)), on the pooled features before the head.

Keys: `RANK/linear` and `RANK/knn`, the errors of a split in percent; `RANK/l2`, the penalty that the training split
chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from granularity.base.section import Count, Rank, Section
from granularity.base.seeds import seed_of

if TYPE_CHECKING:
    import torch

    from granularity.stages.measure.view import View


class Probe(Section):
    l2: list[Annotated[float, Field(gt=0)]] = Field(
        [1e-4, 1e-3, 1e-2, 1e-1, 1.0],
        min_length=1,
        description="L2 penalties of the linear probe: mean cross-entropy + l2 / 2 * |W|^2 on standardised features. "
        "The best on a fifth of the training split is refitted on all of it.",
    )
    neighbours: Count = Field(10, description="Neighbours of the kNN probe (cosine similarity, weighted votes).")
    temperature: float = Field(0.07, ge=0.002, description="A neighbour's vote weighs exp(similarity / temperature).")
    ranks: list[Rank] | None = Field(
        None,
        min_length=1,
        description="Human ranks to probe (null: all). The linear probe holds some 40 bytes for every training image "
        "and class: thousands of classes of a large data set fit no machine.",
    )


Options = Probe


def measure(view: View, options: Probe, seed: int) -> Iterator[tuple[str, str, float]]:
    import torch

    from granularity.learning.evaluation import percent_wrong

    train = view.features("train")
    tests = [train if split == "train" else view.features(split) for split in view.splits]
    for rank in options.ranks or view.ranks:
        classes, labels = len(view.classes(rank)), torch.from_numpy(view.labels("train", rank))
        truths = [view.labels(split, rank) for split in view.splits]
        found, l2 = linear_probe(train, labels, tests, classes, options.l2, seed_of(seed, "probe", rank))
        yield "train", f"{rank}/l2", l2
        for split, predicted, truth in zip(view.splits, found, truths, strict=True):
            yield split, f"{rank}/linear", percent_wrong(predicted.numpy(), truth)
        for split, test, truth in zip(view.splits, tests, truths, strict=True):
            predicted = knn_probe(train, labels, test, classes, options.neighbours, options.temperature)
            yield split, f"{rank}/knn", percent_wrong(predicted.numpy(), truth)


def linear_probe(
    train: torch.Tensor,
    labels: torch.Tensor,
    tests: Sequence[torch.Tensor],
    classes: int,
    penalties: list[float],
    seed: int,
) -> tuple[list[torch.Tensor], float]:
    """Predictions of a logistic regression whose penalty was chosen on a fifth of the training images.

    Args:
        train, tests: features float [N, D] and, each, [M, D]; standardised here by the training features' moments.
        labels: int64 [N].

    Returns:
        predicted classes int64 [M] of each test, and the penalty chosen.
    """
    import numpy as np
    import torch

    mean, std = train.double().mean(0), train.double().std(0, correction=0)
    scale = torch.where(std > 1e-8, std, torch.ones_like(std))
    train, *tests = ((part.double() - mean) / scale for part in (train, *tests))
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(train)))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    best, best_wrong = max(penalties), float("inf")
    if len(penalties) > 1 and len(held):
        weights = None
        for l2 in sorted(penalties, reverse=True):  # each starts where the stronger one before it ended
            weights = logistic_regression(train[kept], labels[kept], classes, l2, weights)
            wrong = float((_scores(train[held], weights).argmax(1) != labels[held]).double().mean())
            if wrong < best_wrong:  # so ties go to the stronger penalty
                best, best_wrong = l2, wrong
    weights = logistic_regression(train, labels, classes, best)
    return [_scores(test, weights).argmax(1) for test in tests], best


def logistic_regression(
    features: torch.Tensor, labels: torch.Tensor, classes: int, l2: float, start: torch.Tensor | None = None
) -> torch.Tensor:
    """Weights [D + 1, C] (the last row is the bias) that minimise mean cross-entropy + l2 / 2 * |W|^2.

    The bias is not penalised. This is scikit-learn's LogisticRegression(C=1 / (l2 * N)), to its tolerance.
    """
    import torch
    import torch.nn.functional as F

    size = (features.shape[1] + 1, classes)
    weights = torch.zeros(size, dtype=features.dtype, device=features.device) if start is None else start.clone()
    weights.requires_grad_(True)
    limits = {"max_iter": 500, "tolerance_grad": 1e-6, "tolerance_change": 1e-12}
    solver = torch.optim.LBFGS([weights], history_size=20, line_search_fn="strong_wolfe", **limits)

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(_scores(features, weights), labels) + l2 / 2 * weights[:-1].square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    return weights.detach()


def _scores(features: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return features @ weights[:-1] + weights[-1]


def knn_probe(
    train: torch.Tensor,
    labels: torch.Tensor,
    test: torch.Tensor,
    classes: int,
    neighbours: int,
    temperature: float,
) -> torch.Tensor:
    """Predicted classes int64 [M] by the weighted vote of the nearest training images."""
    import torch
    import torch.nn.functional as F

    train, test = F.normalize(train.double(), dim=1), F.normalize(test.double(), dim=1)
    found = []
    for part in test.split(1024):
        similarity, index = (part @ train.T).topk(min(neighbours, len(train)), dim=1)
        votes = torch.zeros(len(part), classes, dtype=torch.float64)
        votes.scatter_add_(1, labels[index], (similarity / temperature).exp())
        found.append(votes.argmax(1))
    return torch.cat(found)
