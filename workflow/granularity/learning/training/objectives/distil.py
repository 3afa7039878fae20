"""Objective `distil`: regression onto a teacher's embeddings, without any labels.

The outputs should have the direction of the image's embedding, a unit vector computed by stage `embed`.
"""

from types import SimpleNamespace
from typing import Literal

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section

NEEDS = "embed"


class Options(Section):
    loss: Literal["cosine", "mse"] = Field(
        "cosine",
        description="cosine: 1 - cosine similarity of outputs and embedding; mse: their squared distance, without "
        "normalisation.",
    )


def describe(source, recipe, options: Options) -> dict:
    """Return the family `distil`, without classes. Raise GranularityError if the recipe's loss is for classes."""
    if recipe.loss != "auto":
        raise GranularityError(
            f"pretrain.loss = {recipe.loss}: works only for labels; objective distil has its own loss"
        )
    return {"family": "distil", "granularity": None}


def make(source, data, recipe, options: Options):
    """Return a regression onto the embedding `source`; `outputs` are its dimensions. `evaluate` returns `val_loss`, the
    mean loss of the validation images, and no error.
    """
    import numpy as np
    import torch
    import torch.nn.functional as F

    from granularity.learning.data.dataset import vectors_of
    from granularity.learning.training.evaluation import predict

    vectors = torch.from_numpy(np.array(vectors_of(source, len(data.table))))
    train = torch.from_numpy(data.train)

    def mean(outputs, wanted):
        if options.loss == "mse":
            return (outputs - wanted).square().sum(1).mean()
        return (1 - (F.normalize(outputs, dim=1) * wanted).sum(1)).mean()

    def loss(outputs, picked):
        return mean(outputs, vectors[train[picked]].to(outputs.device))

    def evaluate(network):
        outputs = predict(network, data, data.val, recipe.augment, recipe.precision)
        return {"val_error": None, "val_loss": float(mean(outputs, vectors[data.val]))}, {}

    return SimpleNamespace(outputs=vectors.shape[1], loss=loss, evaluate=evaluate)
