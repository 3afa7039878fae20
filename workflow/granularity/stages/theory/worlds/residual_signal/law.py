"""Residual first-order signal of a label space over any features, those of patches too, which may be absent.

    R(v | S)^2 = E over x_S of | E[(onehot - p_S(x)) x_v | x_S] |^2
    p_S(x) = E[onehot | the features of S that x shows]

S begins empty and greedily takes the feature of largest R; `staircase` is the least R, at its turn, of the features
that an arm is tested on. Where every input shows every feature, as the fair coins of parity, this is the staircase of
`feature_emergence.spaces`. The one difference: that a feature is absent says nothing, as a neuron that does not fire
adds nothing to an output. (Else the last of several exclusive features would be known from the others' absence.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Space:
    """A label space as a table of atoms: kinds of inputs, or the training samples themselves.

    Attributes:
        weight: (n,) how likely each is.
        chance: (n, C) how likely each label is on it.
        shown: (n, F) int, which value of a feature it shows; 0: the feature is absent.
        value: (n, F) the features' values; 0 where absent.
        tested: the features that the arm is tested on.
    """

    weight: np.ndarray
    chance: np.ndarray
    shown: np.ndarray
    value: np.ndarray
    tested: tuple[int, ...]


def signals(space: Space, known: list[int]) -> np.ndarray:
    """(F,) R(v | known) of every feature."""
    rows = space.shown[:, known]
    cells, cell = np.unique(rows, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    fits = ((rows[None] == cells[:, None]) | (cells[:, None] == 0)).all(2) * space.weight  # (cells, n)
    expected = fits @ space.chance / fits.sum(1, keepdims=True)
    left = (space.chance - expected[cell]) * space.weight[:, None]
    member = np.eye(len(cells))[cell].T  # (cells, n)
    pulls = np.einsum("kn,nc,nv->kcv", member, left, space.value, optimize=True)
    return np.sqrt(((pulls**2).sum(1) / (member @ space.weight)[:, None]).sum(0))


def climb(space: Space) -> tuple[list[int], list[float]]:
    """The features as they are taken, and R of each at its turn."""
    order: list[int] = []
    steps: list[float] = []
    while len(order) < space.shown.shape[1]:
        found = signals(space, order)
        found[order] = -1
        order.append(int(found.argmax()))
        steps.append(float(found.max()))
    return order, steps


def staircase(space: Space) -> float:
    """The least R, at its turn, of the features that the arm is tested on."""
    return min(step for v, step in zip(*climb(space), strict=True) if v in space.tested)
