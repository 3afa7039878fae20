"""Evaluating a network on any images: predictions, errors, and scores over classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from granularity.learning.dataset import Data, LabelSets
from granularity.learning.options import Augment, Precision
from granularity.learning.precision import computing

BATCH = 512


def predict(
    forward: Callable[[torch.Tensor], torch.Tensor],
    data: Data,
    rows: np.ndarray,
    augment: Augment,
    precision: Precision = "float32",
) -> torch.Tensor:
    """The outputs of a network in evaluation mode for some images, in order: [B, ...] on the CPU.

    Args:
        forward: the network, or a function of it and normalised images float32 [B, C, H, W].
        rows: row numbers of the sample table, such as `data.val` or `data.rows("v2")`.
        augment: the augmentation of its training, for the centre crop.
        precision: the precision of its training.
    """
    found = []
    with torch.inference_mode(), computing(precision, data.device):
        for images in data.centres(rows, augment, BATCH):
            found.append(_float32(forward(images)).cpu())
    return torch.cat(found) if found else torch.empty(0)


def predicted_classes(
    network: Callable[[torch.Tensor], torch.Tensor],
    data: Data,
    rows: np.ndarray,
    augment: Augment,
    precision: Precision = "float32",
    among: Sequence[int] | None = None,
) -> np.ndarray:
    """The class with the largest output for some images: int64 [B].

    Args:
        among: the only classes to choose from, as for a test set that has a part of them (None: all).
    """
    picked = None if among is None else torch.as_tensor(np.asarray(among, dtype=np.int64)).to(data.device)

    def best(images: torch.Tensor) -> torch.Tensor:
        # Classes, not outputs: those of half a million classes would fill the memory.
        outputs = network(images)
        return outputs.argmax(1) if picked is None else picked[outputs[:, picked].argmax(1)]

    return predict(best, data, rows, augment, precision).numpy().astype(np.int64)


def features(
    network: torch.nn.Module, data: Data, rows: np.ndarray, augment: Augment, precision: Precision = "float32"
) -> torch.Tensor:
    """Pooled features before the head, for some images: float32 [B, D] on the CPU."""

    def forward(images: torch.Tensor) -> torch.Tensor:
        return network.forward_head(network.forward_features(images), pre_logits=True)

    return predict(forward, data, rows, augment, precision)


def _float32(values: torch.Tensor) -> torch.Tensor:
    return values.float() if values.dtype == torch.bfloat16 else values


def right(predicted: np.ndarray, truth: np.ndarray | LabelSets) -> np.ndarray:
    """Whether each prediction is right: bool [B].

    Args:
        truth: the class of each image; or several that are right, any one of which will do.
    """
    return truth.include(predicted) if isinstance(truth, LabelSets) else predicted == truth


def percent_wrong(predicted: np.ndarray, truth: np.ndarray | LabelSets) -> float:
    """Top-1 error in percent; NaN where there is no image."""
    return float(100 * np.mean(~right(predicted, truth))) if len(predicted) else float("nan")


def macro_f1(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Mean over the classes of `truth` of their F1 score, in percent; NaN where there is none.

    As WILDS has it (iWildCam): a class that is predicted but has no image here is no part of the mean. A truth of -1
    is a class that training never saw: its images count against the classes that are predicted for them.
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
    """Error in percent of the images of each class: float64 [classes], NaN for a class without one."""
    images = np.bincount(truth[truth >= 0], minlength=classes)
    hits = np.bincount(truth[(predicted == truth) & (truth >= 0)], minlength=classes)
    with np.errstate(invalid="ignore"):
        return 100 * (1 - hits / images)
