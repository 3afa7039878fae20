"""Objective: the labels of a label space, trained so that a shift of unlabelled images does not matter to the head.

Unlabelled images are those of the measure of `studies/undone_photographs`: known ones of `val`, shifted ones of the
only other split. Each step takes `batch` of each, in evaluation mode. `method` is

- `projected`: the head reads features without the direction between the two means, so neither the head's gradient nor
  the features' has a part along it (the method `gradients` of `studies/contamination_undone`, in the last layer);
- `matched`: the squared distance between the two means, over the variance of known features, is added to the loss with
  weight `penalty` (the first moment of Deep CORAL, Sun and Saenko 2016).

The trained network has an ordinary head, without a projection.
"""

from typing import Literal

from pydantic import Field

from granularity.base.section import Count, Section
from granularity.learning.training.objectives import labels

EXTENDS = "objective"
NEEDS, MOST = "hierarchy", 500  # images of each kind
describe, classes = labels.describe, labels.classes


class Options(Section):
    method: Literal["projected", "matched"] = Field("projected", description="What is done with the shift.")
    batch: Count = Field(64, le=MOST, description="Unlabelled images of each kind in a step.")
    penalty: float = Field(1.0, ge=0, description="Weight of the distance between means, of `matched`.")


def make(source, data, recipe, options: Options):
    """Return a classification whose loss knows `method`. Raise GranularityError unless there is one shifted split."""
    import torch

    from granularity.base.errors import GranularityError

    own = labels.make(source, data, recipe, options)
    others = sorted({*data.table["split"]} - {"train", "val"})
    if len(others) != 1:
        raise GranularityError(
            f"samples.extra_splits: objective unshifted needs one split, of shifted images, not {others}"
        )
    pools = [torch.from_numpy(rows) for rows in (data.rows("val")[:MOST], data.rows(others[0])[MOST : 2 * MOST])]

    def attach(network) -> None:
        plain, head = network.forward, network.get_classifier()

        def features(images):
            return network.forward_head(network.forward_features(images), pre_logits=True)

        def unlabelled() -> tuple:
            network.eval()
            found = tuple(features(data.images(rows[torch.randperm(len(rows))[: options.batch]])) for rows in pools)
            network.train()
            return found

        def without(x):
            with torch.no_grad():
                known, shifted = unlabelled()
                middle = known.mean(0)
                unit = torch.nn.functional.normalize(shifted.mean(0) - middle, dim=0)
            return x - ((x - middle) @ unit)[:, None] * unit

        def forward(images):
            """Outputs with a column more: what is added to the loss."""
            if not network.training:
                return plain(images)
            x = features(images)
            if options.method != "matched":
                return torch.nn.functional.pad(head(without(x)), (0, 1))
            known, shifted = unlabelled()
            distance = (known.mean(0) - shifted.mean(0)).square().sum()
            added = options.penalty * distance / known.var(0).sum().clamp_min(1e-12)
            return torch.cat([head(x), added.expand(len(x), 1)], 1)

        network.forward = forward

    def loss(outputs, picked):
        return type(own).loss(own, outputs[:, :-1], picked) + outputs[:, -1].mean()

    own.attach, own.loss = attach, loss
    return own
