"""Selectivity and activation rates of units, against closed forms, second implementations and shuffled labels."""

import statistics
from types import SimpleNamespace

import numpy as np
import pytest
import timm
import torch
from torch import nn

from granularity.base.errors import GranularityError
from granularity.stages.measure.measures import activation_rate, selectivity
from granularity.stages.measure.stage import sorted_out

PER_CLASS = 40


def measured(measure, labels: np.ndarray, images: torch.Tensor, network=None) -> dict[str, object]:
    """What a measure finds of images, which are the features as well."""

    def predict(split, forward):
        with torch.inference_mode():
            return torch.cat([forward(part) for part in images.split(64)])

    view = SimpleNamespace(about={"run": "01234567"}, network=network, splits=["val"], ranks=["class"], predict=predict)
    view.features, view.labels = (lambda split: images), (lambda split, rank: labels)
    view.classes = lambda rank: np.arange(10)
    arrays, rows = sorted_out(measure.measure(view, measure.Options(), 0), "units")
    return {key.removeprefix("val/"): value for key, value in arrays.items()} | {key: value for _, key, value in rows}


def labels_of(classes: int) -> np.ndarray:
    return np.repeat(np.arange(classes), PER_CLASS)


@pytest.mark.parametrize("classes", [2, 10])
def test_a_unit_for_one_class_alone_has_the_largest_selectivity_and_one_for_all_has_none(classes):
    labels = labels_of(classes)
    features = torch.ones(len(labels), 2)
    features[:, 1] = torch.from_numpy((labels == 0).astype(np.float32))
    found = measured(selectivity, labels, features)
    np.testing.assert_allclose(found["class/units"], [0, 1 - 2 / (classes + 1)], atol=1e-5)


def test_selectivity_is_the_papers_formula_class_by_class():
    labels, rng = labels_of(4), np.random.default_rng(0)
    labels[:7] = -1  # of a class that training never saw
    features = torch.from_numpy(rng.normal(0.2, 1, (len(labels), 5)).astype(np.float32))  # means of both signs
    expected = []
    for unit in features.double().T:
        means = [statistics.fmean(unit[torch.from_numpy(labels == c)].tolist()) for c in range(4)]
        most, average = max(means), statistics.fmean(means)
        expected.append((most - average) / (abs(most) + abs(average) + 1e-6))
    np.testing.assert_allclose(measured(selectivity, labels, features)["class/units"], expected, rtol=1e-6)


@pytest.mark.parametrize("shuffled", [False, True])
def test_what_labels_say_is_above_chance_and_what_shuffled_labels_say_is_not(shuffled):
    labels, rng = labels_of(10), np.random.default_rng(1)
    given = rng.permutation(labels) if shuffled else labels
    gain = torch.from_numpy(rng.uniform(0, 2, (10, 30)).astype(np.float32))[labels]
    images = gain + torch.from_numpy(rng.normal(size=gain.shape).astype(np.float32))
    selective = measured(selectivity, given, images.relu())
    rates = measured(activation_rate, given, images, nn.Sequential(nn.ReLU()))
    above = selective["class/mean"] / selective["class/null"], rates["0/class/spread"] / rates["0/class/spread_null"]
    assert all(0.85 < one < 1.15 if shuffled else one > 1.8 for one in above), above


def test_rates_of_a_known_law():
    """Gaussian pre-activations of mean b are positive with probability Phi(b), and a class can switch a unit off."""
    labels, rng = np.repeat([0, 1], 20000), np.random.default_rng(2)
    pre = rng.normal([-2, 0, 1], 1, (len(labels), 3))
    pre[labels == 1, 2] = -1
    found = measured(activation_rate, labels, torch.from_numpy(pre), nn.Sequential(nn.ReLU()))
    law = [0.02275, 0.5, 0.84134]
    np.testing.assert_allclose(found["0/class/rates"][:2], [law, [*law[:2], 0]], atol=0.01)
    assert np.isnan(found["0/class/rates"][2:]).all()  # classes of the training split without an image here
    np.testing.assert_allclose(found["0/class/spread"], law[2] / 3, atol=0.01)
    np.testing.assert_allclose(found["0/activations"], np.maximum(pre, 0).mean(0), rtol=1e-4)
    off = torch.from_numpy(pre - 2 * labels[:, None])  # most units are off for class 1
    switched = measured(activation_rate, labels, off, nn.Sequential(nn.ReLU()))
    assert (found["0/class/rare"], switched["0/class/rare"]) == (0, 50)


def test_residual_blocks_and_transformers_have_the_rates_of_their_last_activations():
    labels, torch_rng = labels_of(3), torch.Generator().manual_seed(3)
    images = torch.randn(len(labels), 3, 16, 16, generator=torch_rng)
    resnet = timm.create_model("resnet18", layers=[1, 1, 1, 0], channels=[8, 8, 8, 8], num_classes=3).eval()
    found = measured(activation_rate, labels, images, resnet)
    with torch.inference_mode():
        inside = resnet.layer1(resnet.maxpool(resnet.act1(resnet.bn1(resnet.conv1(images)))))
    expected = (inside > 0).double().mean((2, 3)).reshape(3, PER_CLASS, -1).mean(1)
    np.testing.assert_allclose(found["layer1.0.act2/class/rates"][:3], expected, rtol=1e-5)
    np.testing.assert_allclose(found["layer1.0.act2/activations"], inside.double().mean((0, 2, 3)), rtol=1e-4)
    assert len(found["act1/activations"]) == resnet.bn1.num_features  # channels, though the head is a sibling
    assert 0.05 < found["layer1.0.act2/rate"] < 0.95  # and not 1, as with "at least zero"
    assert not any(module._forward_hooks for module in resnet.modules())
    size = {"img_size": 16, "patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 2}
    vit = timm.create_model("vit_tiny_patch16_224", **size).eval()
    found = measured(activation_rate, labels, images, vit)
    with torch.inference_mode():
        tokens = vit.blocks[0](vit.norm_pre(vit._pos_embed(vit.patch_embed(images))))
        block = vit.blocks[1]
        entering = block.mlp.fc1(block.norm2(tokens + block.attn(block.norm1(tokens))))
    expected = (entering > 0).double().mean(1).reshape(3, PER_CLASS, -1).mean(1)
    np.testing.assert_allclose(found["blocks.1.mlp.act/class/rates"][:3], expected, rtol=1e-5)


def test_networks_without_activation_functions_are_refused():
    with pytest.raises(GranularityError, match="01234567: the network has no module such as ReLU"):
        measured(activation_rate, labels_of(2), torch.ones(80, 3), nn.Sequential(nn.Tanh()))
