"""Objective `distil`: regression onto a teacher's embeddings, with no labels at all.

The outputs are to point where the embedding of the image points, which stage `embed` made and which has unit length.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section

NEEDS = "embed"


class Options(Section):
    loss: Literal["cosine", "mse"] = Field(
        "cosine",
        description="cosine: 1 - cosine similarity of outputs and embedding; mse: their squared distance, outputs as "
        "they are.",
    )


def describe(source, recipe, options: Options) -> dict:
    """The family `distil`, without classes.

    Raises:
        GranularityError: the recipe is for outputs that are classes.
    """
    if recipe.loss != "auto":
        raise GranularityError(f"pretrain.loss = {recipe.loss}: is for labels; objective distil has a loss of its own")
    return {"family": "distil", "granularity": None}


def make(source, data, recipe, options: Options):
    """Regression onto the embedding `source`."""
    return Distillation(source, data, recipe, options.loss)


class Distillation:
    """Regression onto the unit vectors of an embedding: `outputs` are its dimensions."""

    def __init__(self, source, data, recipe, loss: str):
        import numpy as np
        import torch

        file = source.path / "embedding.npy"
        values = source.array("embedding.npy", (len(data.table), None), np.float32)
        if not np.isfinite(values).all():
            raise GranularityError(f"{file}: row {np.argmin(np.isfinite(values).all(1))} is not finite")
        self._vectors = torch.from_numpy(np.array(values))
        self._train = torch.from_numpy(data.train)
        self._data, self._augment, self._precision, self._loss = data, recipe.augment, recipe.precision, loss
        self.outputs = values.shape[1]

    def loss(self, outputs, picked):
        """Mean loss of the training images `picked`, int64 [B] on the CPU."""
        return self._of(outputs, self._vectors[self._train[picked]].to(outputs.device))

    def evaluate(self, network) -> tuple[dict, dict]:
        """`val_loss`: the mean loss of the validation images; they have no error."""
        from granularity.learning.evaluation import predict

        outputs = predict(network, self._data, self._data.val, self._augment, self._precision)
        return {"val_error": None, "val_loss": float(self._of(outputs, self._vectors[self._data.val]))}, {}

    def _of(self, outputs, vectors):
        import torch.nn.functional as F

        if self._loss == "mse":
            return (outputs - vectors).square().sum(1).mean()
        return (1 - (F.normalize(outputs, dim=1) * vectors).sum(1)).mean()
