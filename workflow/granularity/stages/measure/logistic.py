"""Multinomial logistic regressions on the same features, many at once: all labels and penalties, in one pass each.

Each minimises mean cross-entropy + l2 / 2 * |W|^2 over the weights W and biases (which are not penalised), as
scikit-learn's LogisticRegression(C=1 / (l2 * N)) does; with two classes, where that has one vector of weights for our
two, as its C=2 / (l2 * N).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import torch

from granularity.stages.measure.lbfgs import Evaluate, Layout, minimise

TOLERANCE = 1e-7  # of a loss, relative: how far it may lie above the minimum
SCORES = {"cpu": 2**19, "cuda": 2**27}  # of a chunk of rows, and coordinates; decides last bits
LEAST_ROWS = 256  # of a chunk: fewer would make slow products
ROWS = 8192  # that are turned at once
RESIDENT_SHARE = 0.5  # of a GPU's free memory that features may take


@dataclass(frozen=True)
class Problem:
    """One regression: on which labels, with how many classes, and its penalty."""

    labels: int
    classes: int
    l2: float


@dataclass(frozen=True)
class Axes:
    """Principal axes of standardised features, along which the curvature of the loss is known well enough to divide it
    out: up to half the steps. The penalty does not change under a rotation.
    """

    mean: torch.Tensor  # float64 [D]
    turn: torch.Tensor  # float64 [D, F - 1], standardises and rotates; axes along which nothing varies are left out
    variance: torch.Tensor  # float64 [F], of coordinates; 1 for the last, the constant 1 that the biases weigh

    @classmethod
    def of(cls, features: torch.Tensor, device: torch.device) -> Axes:
        """Those of features float32 [N, D]."""
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
        """Coordinates of features float64 [B, D]: float64 [B, F]."""
        found = (features - self.mean) @ self.turn
        return torch.cat([found, found.new_ones(len(found), 1)], 1)

    def all(self, features: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        """Coordinates of features in another order: float32 [N, F], on the GPU if there is one with room for them."""
        place, size = self.mean.device, (len(order), len(self.variance))
        if place.type == "cuda" and 4 * size[0] * size[1] > RESIDENT_SHARE * torch.cuda.mem_get_info(place)[0]:
            place = torch.device("cpu")
        found = torch.empty(size, device=place)
        for rows, part in zip(order.split(ROWS), found.split(ROWS), strict=True):
            part.copy_(self(features[rows].to(self.mean.device, torch.float64)))
        return found


def chunks(rows: torch.Tensor, device: torch.device) -> Iterator[torch.Tensor]:
    """Some rows at a time, on the device."""
    return (part.to(device, torch.float64) for part in rows.split(ROWS))


def groups(problems: Iterable[Problem], most: int) -> Iterator[list[Problem]]:
    """Problems that are fitted at once: as many as have that many classes together, or a single one that has more."""
    found: list[Problem] = []
    for problem in problems:
        if found and problem.classes + sum(one.classes for one in found) > most:
            yield found
            found = []
        found.append(problem)
    if found:
        yield found


def fit(
    rows: torch.Tensor,
    labels: Sequence[torch.Tensor],
    problems: Sequence[Problem],
    variance: torch.Tensor,
    tolerance: float = TOLERANCE,
) -> torch.Tensor:
    """Weights float64 [K, F] of some regressions, K being the sum of their classes: first in float32, then in float64.

    Rows are coordinates float32 [N, F], the last of which is 1; labels, int64 [N] each, and the variance of the
    coordinates, [F], lie on the device that is to compute. Problems on the same labels stand side by side. No loss lies
    further above its minimum than `tolerance`, relative.
    """
    counts = [labels[one.labels].bincount(minlength=one.classes) for one in problems]
    shares, sizes = torch.cat(counts).double() / len(rows), [problem.classes for problem in problems]
    found = variance.new_zeros(sum(sizes), len(variance))
    # What is best where the weights are zero. A class that has no images gets none of the probability, and stays so.
    found[:, -1] = shares.clamp(min=1e-300).log()
    # Weights are scaled by units in which all curve the loss about as much, reckoned where all classes are as likely:
    # these decide how many steps are taken, and no result. (Units of each class's own would take more: what moves the
    # scores of all classes alike is then not left alone.)
    penalty = torch.tensor([[one.l2] for one in problems]).to(variance) * torch.ones_like(variance)
    penalty[:, -1] = 0
    units = (variance / torch.tensor([sizes]).T.to(variance) + penalty).rsqrt().reciprocal()
    of_each = units.repeat_interleave(torch.tensor(sizes, device=units.device), 0)
    found *= of_each
    least = shares.clamp(min=1 / len(rows)).split(sizes)

    def losses(dtype: torch.dtype, layout: Layout) -> Evaluate:
        # With a penalty, gradients say how far above its minimum a loss lies: at most |g|^2 / (2 l2), the gap to the
        # dual. Biases have none; they curve the loss by the share of their class, as long as probabilities are close
        # to the shares.
        some = [problems[i] for i in layout.number]
        share = torch.cat([least[i] for i in layout.number])
        l2 = layout.rows(np.array([problem.l2 for problem in some]))
        scale = units[layout.number].to(dtype)[layout.owner]
        bound_of_bias, l2 = (1 / torch.minimum(share, l2)).to(dtype), l2.to(dtype)

        def evaluate(scaled: torch.Tensor) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
            weights = scaled / scale
            loss, gradient = cross_entropy(rows, labels, some, weights)
            penalised = weights[:, :-1]
            gradient[:, :-1].addcmul_(penalised, l2[:, None])
            bound = gradient[:, :-1].square().sum(1) / l2 + gradient[:, -1].square() * bound_of_bias
            both = layout.sums(torch.stack([penalised.square().sum(1) * l2, bound], 1)) / 2
            return loss.cpu().numpy() + both[:, 0], both[:, 1], gradient / scale

        return evaluate

    for dtype, most in ((torch.float32, tolerance / 2), (torch.float64, tolerance)):
        found = minimise(partial(losses, dtype), found.to(dtype), sizes, most)
    return found / of_each


def cross_entropy(
    rows: torch.Tensor, labels: Sequence[torch.Tensor], problems: Sequence[Problem], weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean cross-entropies float64 [P] and their gradients [K, F], a chunk of rows at a time. Weights [K, F] are in the
    order of the problems, and all else as in :func:`fit`; the precision is that of the weights.
    """
    loss = torch.zeros(len(problems), dtype=torch.float64, device=weights.device)
    gradient = torch.zeros_like(weights)
    size = max(LEAST_ROWS, SCORES[weights.device.type] // max(weights.shape))
    for start in range(0, len(rows), size):
        part = rows[start : start + size].to(weights.device, weights.dtype)
        scores, index = weights @ part.T, torch.arange(len(part), device=weights.device)
        problem = row = 0
        for (number, classes), same in groupby(problems, lambda one: (one.labels, one.classes)):
            count, truth = len(list(same)), labels[number][start : start + size]
            own = scores[row : row + count * classes].view(count, classes, len(part))
            own -= own.amax(1, keepdim=True)
            right = own[:, truth, index]
            total = own.exp_().sum(1, keepdim=True)
            loss[problem : problem + count] += (total[:, 0].log() - right).sum(1, dtype=torch.float64)
            own /= total
            own[:, truth, index] -= 1
            problem, row = problem + count, row + count * classes
        gradient.addmm_(scores, part)
    return loss / len(rows), gradient / len(rows)


def predict(rows: Iterable[torch.Tensor], weights: torch.Tensor, problems: Sequence[Problem]) -> torch.Tensor:
    """The class with the largest score, for each regression and row: int64 [P, N] on the CPU. `rows` are coordinates
    float64 [B, F], some at a time.
    """
    found, size = [], max(1, SCORES[weights.device.type] // len(weights))
    for part in (part for several in rows for part in several.split(size)):
        scores = (part @ weights.T).split([problem.classes for problem in problems], 1)
        found.append(torch.stack([one.argmax(1) for one in scores]).cpu())
    return torch.cat(found, 1)
