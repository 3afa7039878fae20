"""Training and evaluating one network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from granularity.config import Recipe
from granularity.optimise import Batches, minimise
from granularity.training.data import Data, augment, centre_crop
from granularity.training.model import optimizer

EVALUATION_BATCH = 512


def train(
    model: torch.nn.Module, data: Data, labels: torch.Tensor, recipe: Recipe, seed: int, checkpoint: Path
) -> list[dict[str, Any]]:
    """Minimise softmax cross-entropy on the training split; returns the history, a row an epoch."""
    rows = torch.from_numpy(data.train)
    batches = Batches(len(rows), recipe.batch_size, seed)
    half = recipe.precision == "bfloat16"

    def loss_at(step: int) -> torch.Tensor:
        picked = batches(step)
        images = augment(data.images(rows[picked]), recipe.augment, seed, step)
        with torch.autocast(data.device.type, torch.bfloat16, enabled=half):
            outputs = model(images)
        return F.cross_entropy(outputs.float(), labels[picked.to(labels.device)])

    return minimise(
        model,
        optimizer(model, recipe),
        loss_at,
        epochs=recipe.epochs,
        steps_per_epoch=batches.per_epoch,
        warmup_epochs=recipe.warmup_epochs,
        seed=seed,
        checkpoint=checkpoint,
    )


def predict(
    forward: Callable[[torch.Tensor], torch.Tensor], data: Data, rows: np.ndarray, recipe: Recipe
) -> torch.Tensor:
    """What a network in evaluation mode gives for some images, in order: [B, ...] on the CPU."""
    found = []
    with torch.inference_mode():
        for start in range(0, len(rows), EVALUATION_BATCH):
            images = centre_crop(data.images(rows[start : start + EVALUATION_BATCH]), recipe.augment)
            found.append(forward(images).float().cpu())
    return torch.cat(found)


def percent_wrong(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(100 * np.mean(predicted != truth))
