"""What is measured of world 3's networks: accuracies, alignment of neurons, pictures of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.feature_emergence.data import Split

MARKS = (0, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 350, 400, 500, 600, 800, 1000, 1500)


def recorded(steps: int, start: int) -> tuple[int, ...]:
    """Steps of the whole schedule to record, counted from `start`."""
    return tuple(mark - start for mark in MARKS if start <= mark <= steps)


def correct(g: Tensor, y: Tensor, parity: Tensor) -> Tensor:
    """Accuracy in per cent (B,) on the rule's two classes; a tie counts as half.

    Args:
        g: (B, n, C) outputs: one decides by its sign, several by the class of the largest.
        y: (B, n) +-1.
        parity: (B, C) +-1, the class of each label.
    """
    if g.shape[2] == 1:
        g = g.squeeze(2)
        return 100 * ((g * y > 0).to(g.dtype) + 0.5 * (g == 0)).mean(1)
    return 100 * (parity.gather(1, g.argmax(2)) == y).to(g.dtype).mean(1)


def accuracy(net: State, split: Split, parity: Tensor) -> Tensor:
    """Accuracy (percent) of the network itself, neuron noise off."""
    g = nets.two_layer(split.x, net["w"], net["a"], nets.TRUNCATED_RELU, net["b"])[0]
    return correct(g, split.y, parity)


def alignment(net: State, u: Tensor) -> dict[str, Tensor]:
    """Cosines of neurons with u, without dead ones (zero weights), in absolute value; and their signs.

    Args:
        net: w (B, R, p), out (B, R, q), what of the weights lies outside those coordinates.
        u: (B, p) unit vectors.
    """
    norm = (net["w"].square().sum(2) + net["out"].square().sum(2)).sqrt()
    alive = norm > 0
    cos = torch.bmm(net["w"], u.unsqueeze(2)).squeeze(2) / norm.clamp_min(1e-30)
    count = alive.sum(1)
    size = cos.abs()
    relevant = (u != 0).unsqueeze(1)
    inside = (net["w"] * relevant).norm(dim=2) / norm.clamp_min(1e-30)
    return {
        "cos_max": cos.masked_fill(~alive, -1).amax(1),
        "cos_mean": (size * alive).sum(1) / count,
        "cos_min": size.masked_fill(~alive, 2).amin(1),
        "in_relevant": (inside.square() * alive).sum(1) / count,
        "positive_share": ((cos > 0) & alive).sum(1) / count,
        "alive": alive.to(cos.dtype).mean(1),
    }


def embed(run: Trial, w: Tensor, landmarks: Tensor, step: int) -> list[dict[str, Any]]:
    """Classical MDS of vectors under D_ij = sqrt(2 - 2 cos_ij): the first two principal components of unit
    vectors, landmarks embedded with them. One row a neuron (R, p), then one a landmark (L, p)."""
    w = w[w.norm(dim=1) > 0]
    unit = torch.cat([w, landmarks]).double()
    unit = unit / unit.norm(dim=1, keepdim=True)  # however small: step 1 leaves norms of 1e-12
    _, _, v = torch.linalg.svd(unit - unit.mean(0), full_matrices=False)
    plane = (unit - unit.mean(0)) @ v[:2].T
    plane *= torch.where(plane[len(w)] < 0, -1.0, 1.0)  # the first landmark lies to the right, above
    cos = unit @ unit[len(w) :].T
    rows = []
    for i in range(len(unit)):
        values = {"neuron": float(i if i < len(w) else len(w) - i - 1)}  # landmarks: -1, -2, ...
        values |= {"mds_x": plane[i, 0].item(), "mds_y": plane[i, 1].item()}
        values |= {"best_cos": cos[i].max().item(), "nearest": float(cos[i].argmax())}
        rows.append(engine.row(run, values, step, "neurons", "snapshot"))
    return rows
