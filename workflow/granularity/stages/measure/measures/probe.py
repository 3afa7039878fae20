"""Probes of a frozen network's features: how well they predict the human ranks.

A linear probe (multinomial logistic regression, its L2 penalty chosen from several) and a kNN probe (cosine similarity,
votes weighted by exp(similarity / 0.07)), on the pooled features before the head. On the training split the linear
probe's error is of the images that it was fitted to; an image is no neighbour of its own.

Keys: `RANK/linear` and `RANK/knn`, the errors on a split in percent; `RANK/l2`, the penalty chosen on the training
split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from granularity.base.section import Count, Section
from granularity.base.seeds import seed_of

if TYPE_CHECKING:
    import numpy as np
    import torch

    from granularity.stages.measure.logistic import Problem
    from granularity.stages.measure.view import View

# Relative tolerances of losses: to choose between penalties, which differ by whole images of a fifth of them; and
# for reported predictions, so that no image changes sides.
CHOOSING, FINAL = 1e-5, 1e-9
WEIGHTS = 2**23  # weights of linear probes fitted at once, unless a single one has more
TESTS = 1024  # rows of a test whose neighbours are searched at once
PAIRS = {"cpu": 2**22, "cuda": 2**27}  # pairs of test and training rows compared at once
TEMPERATURE = 0.07  # a neighbour's vote weighs exp(similarity / TEMPERATURE)
VOTES = 2**22  # votes held at once, in float64


class Probe(Section):
    l2: list[Annotated[float, Field(gt=0)]] = Field(
        [1e-4, 1e-3, 1e-2, 1e-1, 1.0],
        min_length=1,
        description="L2 penalties of the linear probe: mean cross-entropy + l2 / 2 * |W|^2 on standardised features. "
        "The best on a fifth of the training split is refitted on all of it.",
    )
    neighbours: Count = Field(10, description="Neighbours of the kNN probe (cosine similarity, weighted votes).")


Options = Probe


def measure(view: View, options: Probe, seed: int) -> Iterator[tuple[str, str, float]]:
    import torch

    from granularity.learning.training.evaluation import percent_wrong

    held = [(split, view.features(split)) for split in view.splits]
    train, tests = view.features("train"), [features for _, features in held]
    ranks, device = view.ranks, view.data.device
    labels = [torch.from_numpy(view.labels("train", rank)) for rank in ranks]
    classes = [len(view.classes(rank)) for rank in ranks]
    linear = linear_probes(train, labels, tests, classes, options.l2, seed_of(seed, "probe"), device)
    near = [neighbours(train, test, options.neighbours, device, split == "train") for split, test in held]
    for i, rank in enumerate(ranks):
        predicted, l2 = linear[i]
        yield "train", f"{rank}/l2", l2
        for j, split in enumerate(view.splits):
            truth, (similarity, index) = view.labels(split, rank), near[j]
            yield split, f"{rank}/linear", percent_wrong(predicted[j].numpy(), truth)
            voted = vote(similarity, labels[i][index], classes[i])
            yield split, f"{rank}/knn", percent_wrong(voted.numpy(), truth)


def linear_probes(
    train: torch.Tensor,
    labels: Sequence[torch.Tensor],
    tests: Sequence[torch.Tensor],
    classes: Sequence[int],
    penalties: Sequence[float],
    seed: int,
    device: torch.device,
) -> list[tuple[tuple[torch.Tensor, ...], float]]:
    """Fit logistic regressions and predict the tests. Penalties are chosen on one fifth of the training images for all
    ranks, so that one pass over the rest serves all.

    Features are float32 [N, D] and, for each test, [M, D], standardised here by the training features' moments; labels
    int64 [N] per rank. Returns for each rank the predicted classes int64 [M] of each test, and the penalty chosen.
    """
    import numpy as np
    import torch

    from granularity.stages.measure.logistic import Axes, Problem, chunks, fit, groups, predict

    axes = Axes.of(train, device)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(train)))
    rows, labels = axes.all(train, order), [one[order].to(device) for one in labels]
    held, penalties = len(rows) // 5, sorted(penalties, reverse=True)

    def mistakes(group: list[Problem]) -> np.ndarray:
        weights = fit(rows[held:], [one[held:] for one in labels], group, axes.variance, CHOOSING)
        predicted = predict(chunks(rows[:held], device), weights, group)
        truth = torch.stack([labels[one.labels][:held].cpu() for one in group])
        return (predicted != truth).sum(1).numpy()

    def predictions(group: list[Problem]) -> np.ndarray:
        weights = fit(rows, labels, group, axes.variance, FINAL)
        return predict((axes(part) for test in tests for part in chunks(test, device)), weights, group).numpy()

    def of_all(function: Callable, problems: Iterable[Problem]) -> np.ndarray:
        return np.concatenate([function(group) for group in groups(problems, WEIGHTS // len(axes.variance))])

    best = [penalties[0]] * len(classes)
    if len(penalties) > 1 and held:
        wrong = of_all(mistakes, (Problem(i, count, l2) for i, count in enumerate(classes) for l2 in penalties))
        best = [penalties[i] for i in wrong.reshape(-1, len(penalties)).argmin(1)]  # ties: the stronger penalty
    predicted = of_all(predictions, (Problem(i, count, best[i]) for i, count in enumerate(classes)))
    sizes = [len(test) for test in tests]
    return [(one.split(sizes), l2) for one, l2 in zip(torch.from_numpy(predicted), best, strict=True)]


def neighbours(
    train: torch.Tensor, test: torch.Tensor, count: int, device: torch.device, same: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the nearest training images by cosine: similarities float32 [M, count] and rows int64, on the CPU. `same`:
    the tests are the training images, of which none is its own neighbour.
    """
    import torch
    import torch.nn.functional as F

    def chunks(rows: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
        return (F.normalize(part.to(device, torch.float32), dim=1) for part in rows.split(size))

    count, size = min(count, len(train) - same), PAIRS[device.type] // TESTS
    best = [None] * -(-len(test) // TESTS)
    for number, block in enumerate(chunks(train, size)):
        for i, part in enumerate(chunks(test, TESTS)):
            cosines = part @ block.T
            if same:
                rows = torch.arange(i * TESTS, i * TESTS + len(part), device=device)[:, None]
                cosines[rows == torch.arange(number * size, number * size + len(block), device=device)] = -torch.inf
            similarity, index = cosines.topk(min(count, len(block)), dim=1)
            index += number * size
            if best[i] is not None:
                similarity, index = (torch.cat(pair, 1) for pair in zip(best[i], (similarity, index), strict=True))
                similarity, order = similarity.topk(min(count, similarity.shape[1]), dim=1)
                index = index.gather(1, order)
            best[i] = similarity, index
    similarity, index = (torch.cat(parts).cpu() for parts in zip(*best, strict=True))
    return similarity, index


def vote(similarity: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the classes int64 [M] with the most votes, given neighbours' similarities and labels, [M, count]."""
    import torch

    winners, size = [], max(1, VOTES // classes)
    for near, near_labels in zip(similarity.double().split(size), labels.split(size), strict=True):
        votes = torch.zeros(len(near), classes, dtype=torch.float64)
        votes.scatter_add_(1, near_labels, (near / TEMPERATURE).exp())
        winners.append(votes.argmax(1))
    return torch.cat(winners)
