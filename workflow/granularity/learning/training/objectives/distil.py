"""Objective `distil`: regression onto a teacher's embeddings, with no labels at all.

The outputs are to point where the embedding of the image points, which stage `embed` made and which has unit length.
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
        description="cosine: 1 - cosine similarity of outputs and embedding; mse: their squared distance, outputs as "
        "they are.",
    )


def describe(source, recipe, options: Options) -> dict:
    """The family `distil`, without classes; a GranularityError if the recipe is for outputs that are classes."""
    if recipe.loss != "auto":
        raise GranularityError(f"pretrain.loss = {recipe.loss}: is for labels; objective distil has a loss of its own")
    return {"family": "distil", "granularity": None}


def make(source, data, recipe, options: Options):
    """Regression onto the embedding `source`; `outputs` are its dimensions. `evaluate` gives `val_loss`, the mean loss
    of the validation images, which have no error.
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
