"""Evaluate a network on any images: predictions, errors, and scores over classes."""

from collections.abc import Callable

import numpy as np
import torch

from granularity.learning.data.dataset import Data
from granularity.learning.options import Augment, Precision
from granularity.learning.training.precision import computing

BATCH = 512


def predict(
    forward: Callable[[torch.Tensor], torch.Tensor],
    data: Data,
    rows: np.ndarray,
    augment: Augment,
    precision: Precision = "float32",
) -> torch.Tensor:
    """Return the outputs of a network (or a function of normalised images, float32 [B, C, H, W]) for some rows of the
    sample table, such as `data.val`, in order: [B, ...] on the CPU. Pass the precision and augmentation of its
    training.
    """
    batches = []
    with torch.inference_mode(), computing(precision, data.device):
        for images in data.centres(rows, augment, BATCH):
            outputs = forward(images)
            batches.append((outputs.float() if outputs.dtype == torch.bfloat16 else outputs).cpu())
    return torch.cat(batches) if batches else torch.empty(0)


def predicted_classes(network: Callable[[torch.Tensor], torch.Tensor], *given: object) -> np.ndarray:
    """Return the class with the largest output for images given as to :func:`predict`: int64 [B]."""
    # Classes, not outputs: half a million outputs per image would fill the memory.
    return predict(lambda images: network(images).argmax(1), *given).numpy().astype(np.int64)


def features(network: torch.nn.Module, *given: object) -> torch.Tensor:
    """Return the pooled features before the head for images given as to :func:`predict`: float32 [B, D] on the CPU."""
    return predict(lambda images: network.forward_head(network.forward_features(images), pre_logits=True), *given)


def percent_wrong(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the top-1 error in percent; NaN without images."""
    return float(100 * np.mean(predicted != truth)) if len(predicted) else float("nan")


def macro_f1(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean F1 score over the classes of `truth`, in percent, as in WILDS (iWildCam); NaN without classes.
    Images of a class that training never saw (-1) count against the classes predicted for them.
    """
    classes = np.unique(truth[truth >= 0])
    if not len(classes):
        return float("nan")
    size = int(max(predicted.max(), classes[-1])) + 1
    hits = np.bincount(truth[predicted == truth], minlength=size)[classes]
    claimed = np.bincount(predicted[predicted >= 0], minlength=size)[classes]
    images = np.bincount(truth[truth >= 0], minlength=size)[classes]
    return float(100 * np.mean(2 * hits / (claimed + images)))


def error_by_class(predicted: np.ndarray, truth: np.ndarray, classes: int) -> np.ndarray:
    """Return the error in percent of each class: float64 [classes], NaN for a class without images."""
    images = np.bincount(truth[truth >= 0], minlength=classes)
    hits = np.bincount(truth[(predicted == truth) & (truth >= 0)], minlength=classes)
    with np.errstate(invalid="ignore"):
        return 100 * (1 - hits / images)
