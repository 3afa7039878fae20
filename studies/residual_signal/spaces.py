"""Residual first-order signal (docs/findings/residual_signal.md) of a label space, and the label spaces of four worlds.

R(v | S) is that of `feature_emergence.spaces`, except that absent features carry no information; otherwise the absence
of all other exclusive features would reveal the last one. A label space is a table of what inputs show and how they are
labelled: the true distribution or, if samples and labels are fixed, the training set of that run. Features that no
label depends on are left out (except `background` in feature_contamination).
"""

import math
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds.feature_contamination import model as contamination
from granularity.stages.theory.worlds.feature_emergence import spaces as parity
from granularity.stages.theory.worlds.label_granularity import model as patches
from granularity.stages.theory.worlds.mask_reconstruction import model as views

BINS = 4  # of a view's strength, in equal parts of its range


class Space(NamedTuple):
    """A label space as a table of n atoms: kinds of inputs, or the training samples themselves."""

    weight: np.ndarray  # (n,) probability of each atom
    chance: np.ndarray  # (n, C) probability of each label given the atom
    shown: np.ndarray  # (n, F) int, the value of a feature that the atom shows; 0: the feature is absent
    value: np.ndarray  # (n, F) the features' values; 0 if absent
    tested: tuple[int, ...]  # the features that the arm is tested on


def signals(space: Space, known: list[int]) -> np.ndarray:
    """Return (F,) R(v | known) of every feature."""
    rows = space.shown[:, known]
    cells, cell = np.unique(rows, axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    fits = ((rows[None] == cells[:, None]) | (cells[:, None] == 0)).all(2) * space.weight  # (cells, n)
    expected = fits @ space.chance / fits.sum(1, keepdims=True)
    left = (space.chance - expected[cell]) * space.weight[:, None]
    member = np.eye(len(cells))[cell].T  # (cells, n)
    pulls = np.einsum("kn,nc,nv->kcv", member, left, space.value, optimize=True)
    return np.sqrt(((pulls**2).sum(1) / (member @ space.weight)[:, None]).sum(0))


def staircase(space: Space) -> float:
    """Return the smallest R, at its turn, of the features that the arm is tested on."""
    taken = parity.climb(partial(signals, space), space.shown.shape[1])
    return min(step for v, step in zip(*taken, strict=True) if v in space.tested)


def feature_emergence(run: Trial) -> Space:
    """The 32 patterns of A; tested on all five."""
    cfg, ones = run.settings, parity.PATTERNS.sum(1)
    weight = np.full(32, 1 / 32)
    if cfg.structured:
        weight = weight / 2 + np.isin(ones, (0, parity.K)) / 4
    if cfg.labels == "random":  # parity and one of three random IDs
        chance = np.repeat(np.eye(2)[parity.PARITY], 3, axis=1) / 3
    else:
        table = cfg.table or parity.TABLES.get(cfg.labels, parity.PARITY.tolist())
        chance = parity.probabilities(table, cfg.shuffled)
    return Space(weight, chance, parity.PATTERNS + 1, 2.0 * parity.PATTERNS - 1, tuple(range(parity.K)))


def label_granularity(run: Trial) -> Space:
    """The 2k subclasses; features: both common ones, and those of the subclasses, on which it is tested."""
    cfg = run.settings
    s, c = (part.numpy() for part in patches.subclasses(cfg, 1))
    if cfg.fixed:
        drawn = patches.draw_labels(cfg, run.generator("train labels"))
        chance = np.eye(cfg.classes)[drawn.numpy()].reshape(2 * cfg.k, cfg.per_subclass, -1).mean(1)
    elif cfg.labels == "class":
        chance = np.eye(cfg.classes)[s * cfg.g + c % cfg.g]
    else:
        chance = np.full((2 * cfg.k, cfg.classes), 1 / cfg.classes)
        if cfg.labels == "random_within":
            chance = np.repeat(np.eye(2)[s], cfg.g, axis=1) / cfg.g
    shown = np.concatenate([np.eye(2)[s], np.eye(2 * cfg.k)], 1)
    return Space(np.full(2 * cfg.k, 0.5 / cfg.k), chance, shown.astype(int), shown, tuple(range(2, 2 + 2 * cfg.k)))


def feature_contamination(run: Trial) -> Space:
    """Classes and subclasses, tested on the features of subclasses, which both classes share with opposite signs."""
    cfg, K = run.settings, run.settings.subclasses
    y, c = np.repeat((1, -1), K), np.tile(np.arange(K), 2)
    if cfg.data == "fixed":
        streams = run.generator("data"), run.generator("labels")
        drawn = contamination.draw_samples(cfg, cfg.batch, *streams, balanced=True)
        kind, label = ((drawn["y"] < 0).long() * K + drawn["subclass"]).numpy(), drawn["label"].numpy()
    elif cfg.labels == "class":
        kind, label = np.arange(2 * K), (y < 0) * cfg.g + c % cfg.g
    else:  # all subclasses have the same label probabilities
        kind = np.repeat(np.arange(2 * K), cfg.g)
        label = (y < 0)[kind] * cfg.g + np.tile(np.arange(cfg.g), 2 * K)
    chance = np.zeros((2 * K, 2 * cfg.g))
    np.add.at(chance, (kind, label), 1.0 / len(kind))
    value = np.concatenate([y[:, None], y[:, None] * np.eye(K)[c]], 1)
    present = chance.any(1)
    chance, value = chance[present], value[present]
    weight, shown = chance.sum(1), np.where(value > 0, 1, np.where(value < 0, 2, 0))
    return Space(weight, chance / weight[:, None], shown, value, tuple(range(1, K + 1)))


def mask_reconstruction(run: Trial) -> Space:
    """The training samples; features: the two views of each class, with their strengths; tested on all."""
    cfg = run.settings
    data = views.draw_samples(cfg, cfg.samples, run.generator("data"))
    label = views.pretraining_labels(cfg, data["y"], data["strength"], run.generator("labels")).numpy()
    low, high = views.MAIN
    value = np.zeros((cfg.samples, 2 * cfg.k))
    where = 2 * data["y"].unsqueeze(1) + torch.arange(2)
    np.put_along_axis(value, where.numpy(), np.where(data["strength"] < low, 0, data["strength"]), 1)
    shown = np.where(value > 0, 1 + np.clip((value - low) * BINS / (high - low), 0, BINS - 1).astype(int), 0)
    weight = np.full(cfg.samples, 1 / cfg.samples)
    return Space(weight, np.eye(cfg.granularity)[label], shown, value, tuple(range(2 * cfg.k)))


def _kept(row: dict[str, Any]) -> float:
    return row["ood_margin"] / row["id_margin"] if row["id_margin"] else math.nan


# For each world: its label spaces, the phase whose end shows what was learnt, the measure, and its words.
SINGLE = itemgetter("single_accuracy")
WORLDS: dict[str, tuple[Callable[[Trial], Space], str, Callable[[dict[str, Any]], float], str]] = {
    "feature_emergence": (feature_emergence, "network", itemgetter("test_acc"), "test accuracy on parity (%)"),
    "label_granularity": (label_granularity, "train", itemgetter("hard_own"), "response to hard samples"),
    "feature_contamination": (feature_contamination, "train", _kept, "margin kept when the background turns"),
    "mask_reconstruction": (mask_reconstruction, "finetune", SINGLE, "accuracy on single-view samples"),
}
