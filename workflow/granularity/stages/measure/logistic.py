"""Multinomial logistic regressions on the same features, many at once: all labels and penalties in each pass.

Each minimises mean cross-entropy + l2 / 2 * |W|^2 over the weights W and biases (not penalised), like scikit-learn's
LogisticRegression(C=1 / (l2 * N)). With two classes it is like C=2 / (l2 * N), because scikit-learn then has one vector
of weights where we have two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import torch

from granularity.machine.products import matmul
from granularity.stages.measure.lbfgs import Evaluate, Layout, minimise

TOLERANCE = 1e-7  # largest distance of a loss from its minimum, relative
SCORES = {"cpu": 2**19, "cuda": 2**27}  # rows of a chunk times coordinates; affects last bits
LEAST_ROWS = 256  # fewer rows in a chunk would make products slow
ROWS = 8192  # rows rotated at once
RESIDENT_SHARE = 0.5  # share of a GPU's free memory that features may take


@dataclass(frozen=True)
class Problem:
    """One regression: its labels (by index), their number of classes, and its penalty."""

    labels: int
    classes: int
    l2: float


@dataclass(frozen=True)
class Axes:
    """Principal axes of standardised features. Along them the curvature of the loss is known well enough to divide it
    out, which saves up to half the steps. A rotation does not change the penalty.
    """

    mean: torch.Tensor  # float64 [D]
    turn: torch.Tensor  # float64 [D, F - 1], standardises and rotates; constant axes are left out
    variance: torch.Tensor  # float64 [F], of coordinates; 1 for the last, the constant 1 that the biases weigh

    @classmethod
    def of(cls, features: torch.Tensor, device: torch.device) -> Axes:
        """Return the axes of features float32 [N, D]."""
        total = sum(part.sum(0) for part in chunks(features, device))
        mean = total / len(features)
        squares = sum((part := chunk - mean).T @ part for chunk in chunks(features, device)) / len(features)
        std = squares.diagonal().rsqrt().reciprocal()  # MKL's sqrt differs between processors
        scale = torch.where(std > 1e-8, std, torch.ones_like(std))
        variance, axes = torch.linalg.eigh((squares / scale / scale[:, None]).cpu())
        varies = variance > variance[-1] * len(variance) * torch.finfo(torch.float64).eps
        variance, axes = variance[varies].to(device), axes[:, varies].to(device)
        return cls(mean, axes / scale[:, None], torch.cat([variance, variance.new_ones(1)]))

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        """Return the coordinates, float64 [B, F], of features float64 [B, D]."""
        coordinates = (features - self.mean) @ self.turn
        return torch.cat([coordinates, coordinates.new_ones(len(coordinates), 1)], 1)

    def all(self, features: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        """Return the coordinates of features in another order: float32 [N, F], on the GPU if they fit there."""
        place, size = self.mean.device, (len(order), len(self.variance))
        if place.type == "cuda" and 4 * size[0] * size[1] > RESIDENT_SHARE * torch.cuda.mem_get_info(place)[0]:
            place = torch.device("cpu")
        coordinates = torch.empty(size, device=place)
        for rows, part in zip(order.split(ROWS), coordinates.split(ROWS), strict=True):
            part.copy_(self(features[rows].to(self.mean.device, torch.float64)))
        return coordinates


def chunks(rows: torch.Tensor, device: torch.device) -> Iterator[torch.Tensor]:
    """Yield chunks of rows on the device, as float64."""
    return (part.to(device, torch.float64) for part in rows.split(ROWS))


def groups(problems: Iterable[Problem], most: int) -> Iterator[list[Problem]]:
    """Yield problems to fit at once: at most `most` classes together, or a single problem with more."""
    group: list[Problem] = []
    for problem in problems:
        if group and problem.classes + sum(member.classes for member in group) > most:
            yield group
            group = []
        group.append(problem)
    if group:
        yield group


def fit(
    rows: torch.Tensor,
    labels: Sequence[torch.Tensor],
    problems: Sequence[Problem],
    variance: torch.Tensor,
    tolerance: float = TOLERANCE,
) -> torch.Tensor:
    """Fit regressions and return their weights float64 [K, F], K being the sum of their classes.

    Rows are coordinates float32 [N, F], the last of which is 1; labels, int64 [N] each, and the variance of the
    coordinates, [F], lie on the device that computes. Problems on the same labels must be adjacent. No loss exceeds its
    minimum by more than `tolerance`, relative. Fits in float32 first, then in float64.
    """
    counts = [labels[regression.labels].bincount(minlength=regression.classes) for regression in problems]
    shares, sizes = torch.cat(counts).double() / len(rows), [problem.classes for problem in problems]
    solution = variance.new_zeros(sum(sizes), len(variance))
    # The optimum for zero weights. A class without images gets no probability, and keeps none.
    solution[:, -1] = shares.clamp(min=1e-300).log()
    # Weights are scaled by units in which all curve the loss about equally, assuming equally likely classes. These
    # decide the number of steps, not the result. (A unit per class would need more steps: it does not isolate what
    # moves the
    # scores of all classes alike.)
    penalty = torch.tensor([[regression.l2] for regression in problems]).to(variance) * torch.ones_like(variance)
    penalty[:, -1] = 0
    units = (variance / torch.tensor([sizes]).T.to(variance) + penalty).rsqrt().reciprocal()
    of_each = units.repeat_interleave(torch.tensor(sizes, device=units.device), 0)
    solution *= of_each
    least = shares.clamp(min=1 / len(rows)).split(sizes)

    def losses(dtype: torch.dtype, layout: Layout) -> Evaluate:
        # With a penalty, gradients bound a loss's distance from its minimum: at most |g|^2 / (2 l2), the duality gap.
        # Biases have no penalty; they curve the loss by the share of their class, if probabilities are close to shares.
        subset = [problems[i] for i in layout.number]
        share = torch.cat([least[i] for i in layout.number])
        l2 = layout.rows(np.array([problem.l2 for problem in subset]))
        scale = units[layout.number].to(dtype)[layout.owner]
        bound_of_bias, l2 = (1 / torch.minimum(share, l2)).to(dtype), l2.to(dtype)

        def evaluate(scaled: torch.Tensor) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
            weights = scaled / scale
            loss, gradient = cross_entropy(rows, labels, subset, weights)
            penalised = weights[:, :-1]
            gradient[:, :-1].addcmul_(penalised, l2[:, None])
            bound = gradient[:, :-1].square().sum(1) / l2 + gradient[:, -1].square() * bound_of_bias
            sums = layout.sums(torch.stack([penalised.square().sum(1) * l2, bound], 1)) / 2
            return loss.cpu().numpy() + sums[:, 0], sums[:, 1], gradient / scale

        return evaluate

    for dtype, most in ((torch.float32, tolerance / 2), (torch.float64, tolerance)):
        solution = minimise(partial(losses, dtype), solution.to(dtype), sizes, most)
    return solution / of_each


def cross_entropy(
    rows: torch.Tensor, labels: Sequence[torch.Tensor], problems: Sequence[Problem], weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean cross-entropies float64 [P] and their gradients [K, F], computed in chunks of rows. Weights [K, F]
    are in the order of the problems; everything else is as in :func:`fit`, in the precision of the weights.
    """
    loss = torch.zeros(len(problems), dtype=torch.float64, device=weights.device)
    gradient = torch.zeros_like(weights)
    size = max(LEAST_ROWS, SCORES[weights.device.type] // max(weights.shape))
    for start in range(0, len(rows), size):
        part = rows[start : start + size].to(weights.device, weights.dtype)
        scores, index = matmul(weights, part.T), torch.arange(len(part), device=weights.device)
        problem = row = 0
        for (number, classes), same in groupby(problems, lambda regression: (regression.labels, regression.classes)):
            count, truth = len(list(same)), labels[number][start : start + size]
            block = scores[row : row + count * classes].view(count, classes, len(part))
            block -= block.amax(1, keepdim=True)
            right = block[:, truth, index]
            total = block.exp_().sum(1, keepdim=True)
            loss[problem : problem + count] += (total[:, 0].log() - right).sum(1, dtype=torch.float64)
            block /= total
            block[:, truth, index] -= 1
            problem, row = problem + count, row + count * classes
        gradient += matmul(scores, part)
    return loss / len(rows), gradient / len(rows)


def predict(rows: Iterable[torch.Tensor], weights: torch.Tensor, problems: Sequence[Problem]) -> torch.Tensor:
    """Return the class with the largest score, for each regression and row: int64 [P, N] on the CPU. `rows` are chunks
    of coordinates float64 [B, F].
    """
    predictions, size = [], max(1, SCORES[weights.device.type] // len(weights))
    for part in (part for several in rows for part in several.split(size)):
        scores = (part @ weights.T).split([problem.classes for problem in problems], 1)
        predictions.append(torch.stack([block.argmax(1) for block in scores]).cpu())
    return torch.cat(predictions, 1)
