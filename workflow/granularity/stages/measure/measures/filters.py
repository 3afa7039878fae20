"""Directions of filters: whether a layer's filters form two opposed clusters (Shi, Wei and Liang 2022, appendix E).

A filter is one output's weights in a convolution or linear layer, flattened and normalised; filters of zero length are
left out. The first principal direction v of a layer's filters, without centring, gives two clusters: the tenth of the
filters nearest to v and the tenth nearest to -v (the authors picked clusters by hand). A small set of filters looks
alike by chance, a smaller one even more so: compare with the untrained network. Reported under the first split, because
weights have none, for each LAYER:

- `LAYER/to_plus`, `LAYER/to_minus`: the mean cosine of a cluster's filters with their centre, the normalised mean;
- `LAYER/between`: the cosine between the two centres;
- `LAYER/within`: the mean cosine of all filters with their cluster's centre, for two clusters by spherical k-means
  started from the two sides of v; `LAYER/kmeans`: the cosine between these centres;
- `LAYER/zero`: the number of filters left out;
- `LAYER/mds`: an array [filters, 2], coordinates by classical multidimensional scaling of the chords between filters;
  NaN for filters left out; `LAYER/side`: int8 [filters], 1 and -1 for the two clusters of tenths, 0 for other filters.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

import numpy as np
from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section

TAKES_EMBEDDINGS = False
SHARE = 0.1
ROUNDS = 100


class Options(Section):
    layers: list[str] = Field(
        ["*"],
        min_length=1,
        description="Names of layers, or patterns such as layer*.conv2; names that a network lacks are ignored.",
    )


def measure(view, options: Options, seed: int) -> Iterator[tuple[str, str, object]]:
    run, split = view.about["run"], view.splits[0]
    layers = filters(view.network, options.layers)
    if not layers:
        raise GranularityError(f"options.layers: {run} has no convolution or linear layer named {options.layers}")
    for layer, weights in layers.items():
        if not np.isfinite(weights).all():
            raise GranularityError(f"{run}: weights of {layer} are not finite; did its training diverge?")
        lengths = np.linalg.norm(weights, axis=1)
        units = weights[lengths > 0] / lengths[lengths > 0, None]
        yield split, f"{layer}/zero", int(np.sum(lengths == 0))
        if len(units) < 2:
            continue
        sides = nearest(units)
        for name, value in (cosines(units, sides) | two_means(units)).items():
            yield split, f"{layer}/{name}", value
        places = np.full((len(weights), 2), np.nan)
        places[lengths > 0] = scaled(units)
        yield split, f"{layer}/mds", places
        side, kept = np.zeros(len(weights), dtype=np.int8), np.flatnonzero(lengths > 0)
        side[kept[sides[0]]], side[kept[sides[1]]] = 1, -1
        yield split, f"{layer}/side", side


def filters(network, patterns: list[str]) -> dict[str, np.ndarray]:
    """Return the filters of the convolutions and linear layers of these names except the head: float64 [filters, n]."""
    from torch import nn

    head, layers = network.get_classifier(), {}
    for name, layer in network.named_modules():
        kind = isinstance(layer, nn.Conv2d | nn.Linear) and layer is not head
        if kind and any(fnmatchcase(name, pattern) for pattern in patterns):
            layers[name] = layer.weight.detach().cpu().double().flatten(1).numpy()
    return layers


def direction(units: np.ndarray) -> np.ndarray:
    """Return the first principal direction of unit filters [m, d], not centred; its largest weight is positive."""
    component = np.linalg.svd(units, full_matrices=False)[2][0]
    return component * np.sign(component[np.abs(component).argmax()])


def nearest(units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the tenth of the filters nearest to the first principal direction, and to its opposite."""
    order = np.argsort(units @ direction(units), kind="stable")
    count = max(1, round(SHARE * len(units)))
    return order[: -count - 1 : -1], order[:count]


def centre(units: np.ndarray) -> np.ndarray:
    """Return the normalised mean of unit filters, or zero if the mean is zero."""
    mean = units.mean(0)
    return mean / (np.linalg.norm(mean) or 1.0)


def cosines(units: np.ndarray, sides: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Return the mean cosines of two clusters' filters with their centres, and the cosine between the centres."""
    plus, minus = (centre(units[side]) for side in sides)
    near = {"to_plus": (units[sides[0]] @ plus).mean(), "to_minus": (units[sides[1]] @ minus).mean()}
    return near | {"between": plus @ minus}


def two_means(units: np.ndarray) -> dict[str, float]:
    """Run spherical 2-means from the two sides of the first principal direction; an empty cluster has a zero centre."""
    side = (units @ direction(units) > 0).astype(int)
    for _ in range(ROUNDS):
        centres = np.stack([centre(units[side == i]) if (side == i).any() else 0 * units[0] for i in (0, 1)])
        before, side = side, (units @ centres.T).argmax(1)
        if (before == side).all():
            break
    return {"within": (units @ centres.T).max(1).mean(), "kmeans": centres[0] @ centres[1]}


def scaled(units: np.ndarray) -> np.ndarray:
    """Return coordinates [m, 2] by classical scaling of the chords sqrt(2 - 2 cos): two principal components."""
    left, sizes, right = np.linalg.svd(units - units.mean(0), full_matrices=False)
    signs = np.sign(np.take_along_axis(right, np.abs(right).argmax(1)[:, None], 1)[:, 0])
    coordinates = (left * sizes * signs)[:, :2]
    return np.pad(coordinates, [(0, 0), (0, 2 - coordinates.shape[1])])
