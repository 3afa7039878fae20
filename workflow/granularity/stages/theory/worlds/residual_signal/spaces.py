"""The label spaces of four worlds, as tables of what their inputs show and how they are labelled.

Where samples and labels are drawn afresh at each step, the table is the true distribution; where they are fixed, it is
the training set of that run, so that what random labels say of it by chance counts. Background features, noise and
distractors are left out: no label depends on them (but those `background` of feature_contamination, whose tested
features say nothing of it).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds.feature_contamination import model as contamination
from granularity.stages.theory.worlds.feature_emergence import spaces as parity
from granularity.stages.theory.worlds.label_granularity import model as patches
from granularity.stages.theory.worlds.mask_reconstruction import model as views
from granularity.stages.theory.worlds.residual_signal.law import Space

BINS = 4  # of a view's strength, in equal parts of its range


def feature_emergence(run: Trial) -> Space:
    """The 32 patterns of A; tested on all five."""
    cfg, ones = run.settings, parity.PATTERNS.sum(1)
    weight = np.full(32, 1 / 32)
    if cfg.structured:
        weight = weight / 2 + np.isin(ones, (0, parity.K)) / 4
    labels = {"rule": parity.PARITY, "halves": ones % 2 + 2 * (ones >= 3), "count": ones, "pattern": np.arange(32)}
    if cfg.labels == "random":  # parity and one of three random IDs
        chance = np.repeat(np.eye(2)[parity.PARITY], 3, axis=1) / 3
    elif cfg.labels == "table":
        chance = parity.probabilities(cfg.table, cfg.shuffled)
    else:
        chance = np.eye(labels[cfg.labels].max() + 1)[labels[cfg.labels]]
    return Space(weight, chance, parity.PATTERNS + 1, 2.0 * parity.PATTERNS - 1, tuple(range(parity.K)))


def label_granularity(run: Trial) -> Space:
    """The 2k subclasses; features: both common ones, then those of the subclasses, on which it is tested."""
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
    kind = np.arange(2 * K)
    if cfg.data == "fixed":
        drawn = contamination.draw_samples(
            cfg, cfg.batch, run.generator("data"), run.generator("labels"), balanced=True
        )
        kind = ((drawn["y"] < 0).long() * K + drawn["subclass"]).numpy()
        label = drawn["label"].numpy()
    elif cfg.labels == "class":
        label = (y < 0) * cfg.g + c % cfg.g
    else:  # no subclass has one label more than another
        kind, label = np.repeat(kind, cfg.g), np.repeat((y < 0) * cfg.g, cfg.g) + np.tile(np.arange(cfg.g), 2 * K)
    chance = np.zeros((2 * K, 2 * cfg.g))
    np.add.at(chance, (kind, label), 1.0 / len(kind))
    weight = chance.sum(1)
    there = weight > 0
    value = np.concatenate([y[:, None], y[:, None] * np.eye(K)[c]], 1)
    shown = np.where(value > 0, 1, np.where(value < 0, 2, 0))
    chance = chance[there] / weight[there, None]
    return Space(weight[there], chance, shown[there], value[there], tuple(range(1, K + 1)))


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


# Of each world: its label spaces, the phase whose end tells what was learnt, the measure, and its words.
WORLDS: dict[str, tuple[Callable[[Trial], Space], str, Callable[[dict[str, Any]], float], str]] = {
    "feature_emergence": (feature_emergence, "network", lambda row: row["test_acc"], "test accuracy on parity (%)"),
    "label_granularity": (label_granularity, "train", lambda row: row["hard_own"], "response to hard samples"),
    "feature_contamination": (feature_contamination, "train", _kept, "margin kept when the background turns"),
    "mask_reconstruction": (
        mask_reconstruction,
        "finetune",
        lambda row: row["single_accuracy"],
        "accuracy on single-view samples",
    ),
}
