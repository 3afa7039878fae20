"""Objective `levels`: several levels of labels at once, each with its own softmax and weight.

For label spaces with one label per level and image, such as `several: [levels-5]`. The loss is the sum over levels of
weight times cross-entropy. Hong et al. (2023) leave open which weights are best.
"""

from itertools import pairwise
from typing import Annotated

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.learning.training.objectives import labels

NEEDS = "hierarchy"
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Options(Section):
    weights: list[Weight] = Field(min_length=1, description="The weight of each level, from the target on.")


def describe(source, recipe, options: Options) -> dict:
    """Return family and number of classes of a label space. Raise GranularityError if the recipe sets another loss."""
    if recipe.loss != "auto":
        raise GranularityError(
            f"pretrain.loss = {recipe.loss}: objective levels has a softmax for each level; set auto"
        )
    return labels.describe(source, recipe, options)


classes = labels.classes


def make(source, data, recipe, options: Options):
    """Return a classification in each level. The level with the largest weight (the finest of several) predicts a
    class, which is right if its parent is the target class. Raise GranularityError unless each image has one label per
    level, and there are as many weights as levels.
    """
    import numpy as np
    import pandas as pd
    import torch
    import torch.nn.functional as F

    from granularity.learning.data.dataset import LabelSets
    from granularity.learning.training.classification import Classification

    class Levels(Classification):
        def loss(self, outputs, picked):
            truth = of_images[picked].to(outputs.device)
            losses = [F.cross_entropy(outputs[:, level], truth[:, i]) for i, level in enumerate(levels)]
            return sum(weight * term for weight, term in zip(weights, losses, strict=True))

        def evaluate(self, network):
            return super().evaluate(lambda images: network(images) + mask.to(images.device))

    table, weights, where = classes(source), options.weights, "pretrain.objective.options.weights"
    label_sets = data.labels_of(source, len(table))
    sizes = np.diff(label_sets.offsets) if isinstance(label_sets, LabelSets) else np.ones(1, np.int64)
    if {*sizes} != {len(weights)} or len(weights) == 1:
        counts = " to ".join(dict.fromkeys(map(str, (sizes.min(), sizes.max()))))
        raise GranularityError(f"{where}: {len(weights)} weights; an image of {source.path} has {counts} labels")
    values = label_sets.values.reshape(-1, len(weights))
    starts = [0, *values.min(0)[1:].tolist(), len(table)]
    levels = [slice(*pair) for pair in pairwise(starts)]
    if any(column.max() >= level.stop for column, level in zip(values.T, levels, strict=True)):
        raise GranularityError(f"{where}: {source.path} has labels without an order, so no levels")
    of_images = torch.from_numpy(values.astype(np.int64) - np.array(starts[:-1]))
    mask = torch.full((len(table),), -torch.inf)
    mask[levels[max(range(len(weights)), key=lambda i: (weights[i], i))]] = 0
    return Levels(data, label_sets, recipe, pd.Index(data.target_names).get_indexer(table["parent"]))
