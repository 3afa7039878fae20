"""Training and evaluating one network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from granularity.base.errors import GranularityError
from granularity.config.options import Recipe
from granularity.learning.batch_norm import synchronised, whole_batch
from granularity.learning.dataset import Data, LabelSets, augment, centre_crop
from granularity.learning.loop import Batches, minimise, share_of_peak
from granularity.learning.network import freeze_backbone, optimizer, remove_dropout
from granularity.machine import processes

EVALUATION_BATCH = 512


def train(
    model: torch.nn.Module, data: Data, labels: torch.Tensor | LabelSets, recipe: Recipe, seed: int, checkpoint: Path
) -> list[dict[str, Any]]:
    """Minimise the recipe's loss on the training split; returns the history, a row an epoch."""
    rows = torch.from_numpy(data.train)
    batches = Batches(len(rows), recipe.batch_size, seed)
    half = recipe.precision == "bfloat16"
    if not recipe.dropout:
        remove_dropout(model)
    model = synchronised(model, data.device)
    trained = freeze_backbone(model) if recipe.freeze_backbone else model
    part = processes.share(recipe.batch_size)

    def loss_at(step: int) -> torch.Tensor:
        picked = batches(step)[part]
        images = augment(data.images(rows[picked]), recipe.augment, seed, step, among=recipe.batch_size, part=part)
        with torch.autocast(data.device.type, torch.bfloat16, enabled=half), whole_batch():
            outputs = model(images)
        return cross_entropy(outputs.float(), labels, picked, recipe.loss) * (len(picked) / recipe.batch_size)

    return minimise(
        trained,
        optimizer(trained, recipe),
        loss_at,
        epochs=recipe.epochs,
        steps_per_epoch=batches.per_epoch,
        warmup_epochs=recipe.warmup_epochs,
        seed=seed,
        checkpoint=checkpoint,
        schedule=schedule(recipe, batches.per_epoch),
        clip_norm=recipe.clip_norm,
    )


def check_takes(model: torch.nn.Module, data: Data, recipe: Recipe) -> None:
    """Raise a GranularityError if a network cannot take the images, as many cannot that are made for larger ones."""
    try:
        predict(model.eval(), data, data.train[:2], recipe)
    except (RuntimeError, ValueError, AssertionError, TypeError, AttributeError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise GranularityError(f"model: this network cannot take images of {data.side} px ({why})") from error


def cross_entropy(
    outputs: torch.Tensor, labels: torch.Tensor | LabelSets, picked: torch.Tensor, loss: str
) -> torch.Tensor:
    """The loss of some images, a mean over them. Sigmoid: summed over the classes.

    That is sigmoid_xent of google-research/big_vision (utils.py) and weighted_sigmoid_cross_entropy of
    google-research/scenic (model_lib/base_models/model_utils.py); torch's own mean would be over the classes, too.

    Args:
        outputs: float32 [B, G].
        labels: of all training images; sets of labels have no softmax.
        picked: int64 [B], on the CPU: which training images these are.
        loss: `auto`, `softmax` or `sigmoid`.
    """
    if isinstance(labels, LabelSets):
        truth = labels.multi_hot(picked, outputs.shape[1], outputs.device)
    else:
        single = labels[picked.to(labels.device)]
        if loss != "sigmoid":
            return F.cross_entropy(outputs, single)
        truth = torch.zeros_like(outputs).scatter_(1, single[:, None], 1.0)
    return F.binary_cross_entropy_with_logits(outputs, truth, reduction="sum") / len(outputs)


def schedule(recipe: Recipe, steps_per_epoch: int) -> Callable[[int, int, float], float]:
    return partial(
        share_of_peak,
        hold=recipe.hold_epochs * steps_per_epoch,
        shape=recipe.schedule,
        final=recipe.final_lr / recipe.lr,
        every=recipe.step_epochs * steps_per_epoch,
        factor=recipe.step_factor,
    )


def predict(
    forward: Callable[[torch.Tensor], torch.Tensor], data: Data, rows: np.ndarray, recipe: Recipe
) -> torch.Tensor:
    """What a network in evaluation mode gives for some images, in order: [B, ...] on the CPU."""
    found = []
    with torch.inference_mode():
        for start in range(0, len(rows), EVALUATION_BATCH):
            images = centre_crop(data.images(rows[start : start + EVALUATION_BATCH]), recipe.augment)
            found.append(forward(images).cpu())
    return torch.cat(found)


def percent_wrong(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(100 * np.mean(predicted != truth))
