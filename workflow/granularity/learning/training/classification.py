"""Classification: cross-entropy with one or several labels per image, and the error on the target."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from granularity.learning.data.dataset import Data, LabelSets
from granularity.learning.options import Recipe
from granularity.learning.training.evaluation import percent_wrong, predicted_classes


class Classification:
    """An objective (:mod:`granularity.learning.training.objectives`). `labels` are those of the training images, int64
    [n] on the device, or sets of labels. `parent` is the target class of each class, int64 [G]; negative for a class
    without one, whose prediction is always wrong.
    """

    def __init__(self, data: Data, labels: torch.Tensor | LabelSets, recipe: Recipe, parent: np.ndarray):
        self.outputs = len(parent)
        self._data, self._labels, self._recipe = data, labels, recipe
        self._parent = np.where(parent >= 0, parent, -2)  # -1 marks an unseen class in the target

    def loss(self, outputs: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of some training images, see :func:`cross_entropy`."""
        return cross_entropy(outputs, self._labels, picked, self._recipe.loss)

    def evaluate(self, network: torch.nn.Module) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return `val_error` (percent) and `predictions`: the predicted class of each validation image, int32."""
        found = predicted_classes(network, self._data, self._data.val, self._recipe.augment, self._recipe.precision)
        wrong = percent_wrong(self._parent[found], self._data.target[self._data.val])
        return {"val_error": wrong}, {"predictions": found.astype(np.int32)}


def cross_entropy(
    outputs: torch.Tensor, labels: torch.Tensor | LabelSets, picked: torch.Tensor, loss: str
) -> torch.Tensor:
    """Return the mean loss of some images. The sigmoid loss is summed over the classes.

    This is sigmoid_xent of google-research/big_vision (utils.py) and weighted_sigmoid_cross_entropy of
    google-research/scenic (model_lib/base_models/model_utils.py); torch's own mean would also average over classes.

    Outputs are float32 [B, G]; `labels` belong to all training images, and `picked`, int64 [B] on the CPU, selects
    these images. `loss` is `auto`, `softmax` or `sigmoid`; sets of labels have no softmax.
    """
    if isinstance(labels, LabelSets):
        truth = labels.multi_hot(picked, outputs.shape[1], outputs.device)
    else:
        single = labels[picked.to(labels.device)]
        if loss != "sigmoid":
            return F.cross_entropy(outputs, single)
        truth = torch.zeros_like(outputs).scatter_(1, single[:, None], 1.0)
    return F.binary_cross_entropy_with_logits(outputs, truth, reduction="sum") / len(outputs)
