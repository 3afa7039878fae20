"""Shifted images without labels, used at test time to undo their shift: what the network's own head then gets wrong.

The two splits in `shift` have the same images, known and shifted. Of the first `OTHERS`, half serve as unlabelled known
images and half as shifted ones; the rest are tested. Keys: METHOD/in and METHOD/out, the error in percent on known and
on shifted images. Methods, at the inputs of the head: `none`; `projected-N`, without the direction between the means of
N unlabelled images of each kind, at the known images' mean; `matched-N`, shifted images less the difference of means
(the first moment of CORAL); `random`, without a random direction. And `statistics-N`: batch normalisation with the
statistics of N shifted images (AdaBN).
"""

import copy

from pydantic import Field

from granularity.base.section import Section
from granularity.base.seeds import seed_of

EXTENDS = "measure"
OTHERS = 1000


class Options(Section):
    shift: list[str] = Field(min_length=2, max_length=2, description="The splits of known and of shifted images.")
    unlabelled: list[int] = Field([20, 500], description="Numbers of unlabelled images of each kind, at most 500.")


def measure(view, options: Options, seed: int):
    import numpy as np
    import torch

    from granularity.learning.training.evaluation import percent_wrong, predicted_classes

    most = OTHERS // 2
    known, shifted = (view.features(split).double().numpy() for split in options.shift)
    truth = view.data.target[view.rows(options.shift[0])][OTHERS:]
    head = copy.deepcopy(view.network.get_classifier()).double().cpu()
    tests = {"in": known[OTHERS:], "out": shifted[OTHERS:]}

    def wrong(features) -> float:
        with torch.inference_mode():
            return percent_wrong(view.answers[head(torch.from_numpy(features)).argmax(1).numpy()], truth)

    def without(direction, middle) -> dict:
        unit = direction / np.linalg.norm(direction)
        return {name: x - np.outer((x - middle) @ unit, unit) for name, x in tests.items()}

    means = {n: (known[:n].mean(0), shifted[most : most + n].mean(0)) for n in options.unlabelled}
    drawn = np.random.default_rng(seed_of(seed, "random")).normal(size=known.shape[1])
    found = {"none": tests, "random": without(drawn, known[:most].mean(0))}
    for n, (one, other) in means.items():
        found[f"projected-{n}"] = without(other - one, one)
        found[f"matched-{n}"] = {"in": tests["in"], "out": tests["out"] - (other - one)}
    for method, of in found.items():
        for name, features in of.items():
            yield "val", f"{method}/{name}", wrong(features)
    rows = [view.rows(split) for split in options.shift]
    for n in options.unlabelled:
        network = _adapted(view, rows[1][most : most + n])
        for name, own in zip(("in", "out"), rows, strict=True):
            best = predicted_classes(network, view.data, own[OTHERS:], view.augment, view.precision)
            yield "val", f"statistics-{n}/{name}", percent_wrong(view.answers[best], truth)


def _adapted(view, rows):
    """Return the network with the statistics of some images in its batch normalisation."""
    import torch

    from granularity.learning.training.evaluation import predict

    network = copy.deepcopy(view.network)
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.reset_running_stats()
            part.momentum = None  # the mean over batches
            part.train()
    predict(network, view.data, rows, view.augment, view.precision)
    return network.eval()
