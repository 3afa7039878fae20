"""Label spaces that refine parity, and the staircase: a prediction, before any training, of which of them teach parity.

A label space is a table: the label of each of the 32 patterns of A. The staircase (docs/findings/parity.md) uses the
indicator functions of the labels, for x in {-1, 1}^5:

    R(v | S)^2 = E over x_S of | E[(onehot - p_S(x)) x_v | x_S] |^2,    p_S = E[onehot | x_S]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

K = 5
PATTERNS = np.arange(2**K)[:, None] >> np.arange(K) & 1  # (32, 5), pattern i has the bits of i
ONES = PATTERNS.sum(1)
PARITY = ONES % 2
# Label spaces that have a name in this world.
TABLES = {"halves": (ONES % 2 + 2 * (ONES >= 3)).tolist(), "count": ONES.tolist(), "pattern": list(range(2**K))}


def refined(*functions: np.ndarray) -> tuple[int, ...]:
    """Return the label space of parity and some functions (32,) of the pattern, as a table (32,) of labels 0, 1, ..."""
    rows = np.stack([PARITY, *functions], 1)
    return tuple(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).tolist())


def count(bits: Sequence[int]) -> np.ndarray:
    """Return how many of some coordinates are 1."""
    return PATTERNS[:, list(bits)].sum(1)


def subparity(bits: Sequence[int]) -> np.ndarray:
    """Return the parity of some coordinates."""
    return count(bits) % 2


def probabilities(table: Sequence[int], shuffled: float = 0.0) -> np.ndarray:
    """Return each label's probability for each pattern, (32, C); a share is redrawn among patterns of equal parity."""
    onehot = np.eye(max(table) + 1)[list(table)]
    same = (PARITY[:, None] == PARITY[None]) / (len(PARITY) / 2)
    return (1 - shuffled) * onehot + shuffled * same @ onehot


@dataclass(frozen=True)
class Law:
    """What is known of a label space before training."""

    order: tuple[int, ...]  # the coordinates in the order of the staircase
    steps: tuple[float, ...]  # R of each coordinate at its turn
    staircase: float  # the smallest of them: how strongly parity is taught
    balanced: float  # the same for the residual that the first steps see, over its noise (see `balance`)
    weakest: float  # the smallest R(v | nothing): the staircase without its stairs
    degree_1: float  # root of the sum of squares of R(v | nothing)
    information: float  # mutual information of label and pattern, bits
    labels: int  # number of labels, G


def signal(chance: np.ndarray, v: int, known: Sequence[int]) -> float:
    """Return R(v | known) for label probabilities (32, C), over fair coins."""
    cell = PATTERNS[:, list(known)] @ (2 ** np.arange(len(known))) if known else np.zeros(len(PATTERNS), int)
    total = 0.0
    for value in np.unique(cell):
        mask = cell == value
        left = chance[mask] - chance[mask].mean(0)
        total += mask.mean() * float(((left * (2 * PATTERNS[mask, v, None] - 1)).mean(0) ** 2).sum())
    return total**0.5


def balance(chance: np.ndarray) -> np.ndarray:
    """Scale indicators to one-against-rest outputs with balanced weights, 1 / (2 Pr[y = v]) for each sample.

    Label c's correlation with a coordinate is then its covariance over 2 P_c (1 - P_c), of variance
    1 / (4 P_c (1 - P_c) n) for n samples; the scale makes the sum of these variances over labels 1 / n.
    """
    mean = chance.mean(0)
    spread = 2 * mean * (1 - mean)
    return chance / spread / np.sqrt((0.5 / spread).sum())


def climb(signals: Callable[[list[int]], Sequence[float]], count: int = K) -> tuple[list[int], list[float]]:
    """Return the coordinates in the order of the staircase, and R of each at its turn; `signals(known)` is R of all."""
    order, steps = [], []
    for _ in range(count):
        values = np.array(signals(order))
        values[order] = -1
        order.append(int(values.argmax()))
        steps.append(float(values.max()))
    return order, steps


def law(table: Sequence[int], shuffled: float = 0.0) -> Law:
    """Return the staircase of a label space, and what else is known of it (see :class:`Law`)."""
    chance = probabilities(table, shuffled)

    def signals(chance: np.ndarray, known: Sequence[int]) -> list[float]:
        return [signal(chance, v, known) for v in range(K)]

    order, steps = climb(partial(signals, chance))
    first = signals(chance, ())
    mean = chance.mean(0)
    known = chance * np.log2(np.where(chance > 0, chance, 1) / mean)
    least = {
        "staircase": min(steps),
        "balanced": min(climb(partial(signals, balance(chance)))[1]),
        "weakest": min(first),
    }
    mass, information = float(np.linalg.norm(first)), float(known.sum(1).mean())
    return Law(tuple(order), tuple(steps), **least, degree_1=mass, information=information, labels=len(mean))
