"""Objective `balanced`: labels, and on unlabelled inputs predictions that are balanced and each of one class.

The teacher of Shi, Wei and Liang 2022, section 6: cross-entropy + weight * (sum_j p_j ln p_j + spread * mean entropy),
p being the mean prediction on as many unlabelled inputs as the step has images, in one batch with them. They are drawn
at every step: images of a split, or Gaussians with the mean and standard deviation that each pixel has in the training
images (of whole images: no random crops).
"""

from types import SimpleNamespace

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.learning.training.objectives import labels

EXTENDS, NEEDS = "objective", "hierarchy"
GAUSSIAN = "gaussian"
describe, classes = labels.describe, labels.classes


class Options(Section):
    unlabelled: str = Field(GAUSSIAN, description="`gaussian`, or the split whose images are the unlabelled inputs.")
    weight: float = Field(1.0, ge=0, description="Weight of the regulariser.")
    spread: float = Field(1.0, ge=0, description="Weight of the mean entropy in it: lambda.")


def regulariser(logits, spread: float):
    """The sum of p ln p over classes, p being the mean prediction, plus spread times the mean entropy."""
    import torch

    log_p = torch.log_softmax(logits, 1)
    log_mean = torch.logsumexp(log_p, 0) - torch.log(torch.tensor(float(len(logits))))
    return (log_mean.exp() * log_mean).sum() - spread * (log_p.exp() * log_p).sum(1).mean()


def make(source, data, recipe, options: Options):
    """Classification into a label space, with outputs on unlabelled inputs beside those on images while it trains."""
    import torch

    known, rows = labels.make(source, data, recipe, options), torch.from_numpy(data.rows(options.unlabelled))
    if options.unlabelled != GAUSSIAN and not len(rows):
        raise GranularityError(f"objective.options.unlabelled: there are no images of the split '{options.unlabelled}'")
    images = data.images(data.train)
    mean, std = images.mean(0), images.std(0)

    def drawn(like):
        if len(rows):
            return data.images(rows[torch.randint(len(rows), (len(like),))])
        return mean + std * torch.randn_like(like)

    def attach(network) -> None:
        plain = network.forward

        def forward(images):
            if not network.training:
                return plain(images)
            return torch.cat(plain(torch.cat([images, drawn(images)])).chunk(2), 1)

        network.forward = forward

    def loss(outputs, picked):
        seen, unseen = outputs.chunk(2, 1)
        return known.loss(seen, picked) + options.weight * regulariser(unseen, options.spread)

    return SimpleNamespace(outputs=known.outputs, attach=attach, loss=loss, evaluate=known.evaluate)
