"""Clusters of filters against explicit loops, numbers of clusters that are known, and what has no filters."""

from types import SimpleNamespace

import numpy as np
import pytest
import timm
import torch
from torch import nn

from granularity.base.errors import GranularityError
from granularity.stages.measure.measures import filters
from granularity.stages.measure.stage import sorted_out


def measured(network, *layers: str) -> dict[str, object]:
    view = SimpleNamespace(about={"run": "01234567"}, network=network, splits=["val"])
    arrays, rows = sorted_out(filters.measure(view, filters.Options(layers=layers or ["*"]), 0), "filters")
    return {key.removeprefix("val/"): value for key, value in arrays.items()} | {key: value for _, key, value in rows}


def layer(weights) -> nn.Module:
    network = nn.Sequential(nn.Linear(*np.shape(weights)[::-1]))
    network[0].weight.data = torch.as_tensor(np.asarray(weights), dtype=torch.float32)
    network.get_classifier = lambda: None
    return network


def test_the_cosines_are_those_of_explicit_loops():
    network = timm.create_model("resnet18", layers=[1, 1, 1, 1], channels=[8, 40, 8, 8], num_classes=3)
    found = measured(network, "layer2*conv2")
    assert {key.rpartition("/")[0] for key in found} == {"layer2.0.conv2"}
    raw = [one.flatten().double().numpy() for one in network.layer2[0].conv2.weight.detach()]
    units = [one / np.sqrt((one**2).sum()) for one in raw]
    _, vectors = np.linalg.eigh(sum(np.outer(one, one) for one in units))
    by = sorted(units, key=lambda one: one @ vectors[:, -1])
    sides = [by[:4], by[-4:]]  # a tenth of 40 each
    centres = [sum(side) / np.linalg.norm(sum(side)) for side in sides]
    own = sorted(np.mean([one @ middle for one in side]) for side, middle in zip(sides, centres, strict=True))
    assert sorted([found["layer2.0.conv2/to_plus"], found["layer2.0.conv2/to_minus"]]) == pytest.approx(own)
    assert found["layer2.0.conv2/between"] == pytest.approx(centres[0] @ centres[1])
    order = np.argsort([one @ vectors[:, -1] for one in units])
    tenths = {frozenset(np.flatnonzero(found["layer2.0.conv2/side"] == sign)) for sign in (-1, 1)}
    assert tenths == {frozenset(order[:4]), frozenset(order[-4:])}
    chords = np.linalg.norm(np.subtract.outer(units, units).diagonal(axis1=1, axis2=3), axis=2)
    doubled = -0.5 * (np.eye(40) - 1 / 40) @ chords**2 @ (np.eye(40) - 1 / 40)
    sizes = np.linalg.eigvalsh(doubled)[:-3:-1]
    np.testing.assert_allclose((found["layer2.0.conv2/mds"] ** 2).sum(0), sizes, rtol=1e-6)


def test_opposed_clusters_are_found_and_a_filter_of_zeros_is_left_out():
    rng = np.random.default_rng(0)
    axis = np.eye(20)[3] * rng.choice([-1, 1], (30, 1)) * rng.uniform(1, 5, (30, 1))
    found = measured(layer(np.concatenate([axis + 0.01 * rng.normal(size=axis.shape), np.zeros((1, 20))])))
    assert found["0/zero"] == 1 and np.isnan(found["0/mds"][-1]).all() and np.isfinite(found["0/mds"][:-1]).all()
    assert min(found["0/to_plus"], found["0/to_minus"], found["0/within"], -found["0/between"]) > 0.99
    chance = measured(layer(rng.normal(size=(30, 2000))))
    assert chance["0/within"] < 0.35 and -0.3 < chance["0/between"] < 0.05


def test_what_has_no_such_filters_is_one_line():
    with pytest.raises(GranularityError, match=r"options.layers: 01234567 has no .* layer named \['conv9'\]"):
        measured(layer(np.eye(3)), "conv9")
