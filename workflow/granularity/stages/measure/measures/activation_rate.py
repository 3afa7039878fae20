"""How often units are active, by class, in each block of a network (Zhang et al. 2024, section 5, Figs. 4, 11, 12, 15).

A unit is a channel of a block's last activation function (in a transformer's block: the MLP's). It is active where the
input of this function is positive, so the function must preserve signs: ReLU, GELU and similar ones. (The equation
printed in the paper, 1 where sigma(x) >= 0, would be 1 everywhere for a ReLU.) A unit's rate on an image is the share
of places (pixels of the map, tokens) at which it is active. Networks without such functions are rejected.

For a split and each LAYER, the name of a block's last activation function:

- `LAYER/rate`: the mean rate over images and units, the density of activations;
- `LAYER/activations`: an array [units] of mean outputs; for the first residual block, the histogram of Fig. 15;
- `LAYER/RANK/rates`: an array [classes of the training split, units], means over a class's images (NaN if there are
  none). Figs. 4, 11 and 12 show the means of its rows;
- `LAYER/RANK/rare`: the percentage of classes for which that mean is below 0.1;
- `LAYER/RANK/spread`: a unit's largest rate minus its smallest, averaged over units; for two classes, their difference,
  as in Fig. 3 (b). `LAYER/RANK/spread_null`: the same with shuffled labels (mean of 10 shuffles).
"""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.base.seeds import seed_of
from granularity.stages.measure.measures.selectivity import class_means, shufflings

KEEP_SIGNS = {"ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "GELU", "GELUTanh", "QuickGELU", "SiLU", "Swish", "Mish"}
KEEP_SIGNS |= {"Hardswish", "HardSwish"}  # names in torch and in timm
RARE = 0.1

Options, TAKES_EMBEDDINGS = Section, False


def measure(view, options: Options, seed: int) -> Iterator[tuple[str, str, object]]:
    if not (layers := activations(view.network)):
        problem = f"{view.about['run']}: the network has no module such as ReLU or GELU for activation_rate"
        raise GranularityError(f"{problem}; leave it out")
    for split in view.splits:
        for layer, (rates, outputs) in watched(view, split, layers).items():
            yield split, f"{layer}/rate", rates.mean(dtype=np.float64)
            yield split, f"{layer}/activations", outputs.mean(0, dtype=np.float64)
            for rank in view.ranks:
                labels = view.labels(split, rank)
                if len(np.unique(labels[labels >= 0])) < 2:
                    continue
                means = np.full((len(view.classes(rank)), rates.shape[1]), np.nan)
                class_rates = class_means(rates, labels)
                means[: len(class_rates)] = class_rates
                yield split, f"{layer}/{rank}/rates", means
                of_classes = class_rates.mean(1)[~np.isnan(class_rates[:, 0])]
                yield split, f"{layer}/{rank}/rare", 100 * np.mean(of_classes < RARE)
                yield split, f"{layer}/{rank}/spread", spread(class_rates)
                null = shufflings(labels, seed_of(seed, "activation_rate", rank))
                yield split, f"{layer}/{rank}/spread_null", np.mean([spread(class_means(rates, draw)) for draw in null])


def spread(means: np.ndarray) -> float:
    """Return the largest minus the smallest of each unit's rates [C, units], averaged over units."""
    return float(np.mean(np.nanmax(means, 0) - np.nanmin(means, 0)))


def activations(network) -> dict[str, tuple[object, int]]:
    """Return the last activation function of each block by name, and its channel axis."""
    from torch import nn

    layers = {}
    for block, parent in network.named_modules():
        children = dict(parent.named_children())
        named = [name for name, child in children.items() if type(child).__name__ in KEEP_SIGNS]
        if named:
            name, last = named[-1], children[named[-1]]
            before = [*children.values()][: [*children].index(name)]
            kinds = [child for child in before if isinstance(child, (nn.Linear, nn.Conv2d))]
            axis = -1 if kinds and isinstance(kinds[-1], nn.Linear) else 1
            layers[f"{block}.{name}" if block else name] = last, axis
    return layers


def watched(view, split: str, layers: dict[str, tuple[object, int]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return for each layer that runs, by name, its units' rates and mean outputs on each image, float32 [N, units]."""
    import torch

    caught = {}

    def catcher(name: str, axis: int):
        def catch(module, inputs, output):  # keeps the last call of a module that runs several times
            places = output.float().movedim(axis, 1).reshape(len(output), output.shape[axis], -1)
            caught[name] = (places > 0).float().mean(2), places.mean(2)

        return catch

    def forward(images):
        view.network(images)
        return torch.cat([part for pair in caught.values() for part in pair], 1)

    with ExitStack() as hooks:
        for name, (module, axis) in layers.items():
            hooks.callback(module.register_forward_hook(catcher(name, axis)).remove)
        values = view.predict(split, forward).numpy()
    sizes = np.cumsum([part.shape[1] for pair in caught.values() for part in pair])[:-1]
    parts = iter(np.split(values, sizes, axis=1))
    return {name: (next(parts), next(parts)) for name in caught}
