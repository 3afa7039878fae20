"""Eigen-CAM: maps against NumPy's singular vectors, numbers of maps that are known, and what has no feature map."""

import numpy as np
import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.learning.data.dataset import Data
from granularity.learning.networks.network import build
from granularity.learning.options import Augment, Model
from granularity.learning.training import evaluation
from granularity.stages.measure.measures import eigen_cam
from granularity.stages.measure.view import View
from granularity.store.artifact import Artifact

MODEL = Model(args={"layers": [1, 1, 0, 0], "channels": [8, 8, 8, 8]})  # 4 x 4 positions of 8 px
CPU = torch.device("cpu")


@pytest.fixture
def view(digits, digits_pixels):
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)
    return lambda network: View({"run": "01234567", "epoch": 1}, network, None, ["val"], [], None, data, Augment())


def found(view, **options) -> dict:
    return {key: value for _, key, value in eigen_cam.measure(view, eigen_cam.Options(**options), 0)}


@pytest.mark.parametrize("centred", [False, True])
def test_maps_are_those_of_the_first_singular_vector(view, centred):
    network = build(MODEL, 1, 3, 0).eval()
    seen = view(network)
    made = found(seen, images=7, centred=centred)
    rows = seen.rows("val")[[0, 9, 19, 29, 39, 49, 59]]
    np.testing.assert_array_equal(made["rows"], rows)
    activations = evaluation.predict(network.forward_features, seen.data, rows, Augment()).numpy()
    explained, quarters, spreads = [], [], []
    for image, one in zip(made["maps"], activations, strict=True):
        whole = one.reshape(8, 16).T
        _, sizes, right = np.linalg.svd(whole - centred * whole.mean(0))
        vector = right[0] * np.sign(right[0] @ whole.mean(0))
        expected = (whole - centred * whole.mean(0)) @ vector
        np.testing.assert_allclose(image.reshape(16), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
        assert centred or expected.mean() >= 0
        explained.append(sizes[0] ** 2 / (sizes**2).sum())
        share = expected.clip(0) / expected.clip(0).sum()
        quarters.append(sum(sorted(share)[-4:]))
        spreads.append(np.exp(-sum(p * np.log(p) for p in share if p > 0)) / 16)
    assert made["explained"] == pytest.approx(np.mean(explained), rel=1e-4)
    assert made["largest_quarter"] == pytest.approx(np.mean(quarters), rel=1e-4)
    assert made["spread"] == pytest.approx(np.mean(spreads), rel=1e-4)


class Shown(torch.nn.Module):
    """A network whose activations are one map for every image, along one feature that is negative."""

    num_features = 2

    def __init__(self, shown: list[list[float]]):
        super().__init__()
        self.shown = torch.tensor(shown)

    def forward_features(self, images):
        return torch.stack([-self.shown, 0 * self.shown]).expand(len(images), 2, *self.shown.shape)


@pytest.mark.parametrize(
    ("shown", "quarter", "spread", "regions"),
    [
        ([[1.0] * 4] * 4, 1 / 4, 1, 1),
        ([[1.0, 0, 0, 0]] + [[0.0] * 4] * 3, 1, 1 / 16, 1),
        ([[1.0, 0, 0, 1.0]] + [[0.0] * 4] * 2 + [[0, 0.6, 0, 0.4]], 1, None, 3),
        ([[0.0] * 4] * 4, 1 / 4, 1, 1),
    ],
    ids=["even", "a point", "three parts", "nothing"],
)
def test_a_map_that_is_known_has_its_numbers(view, shown, quarter, spread, regions):
    made = found(view(Shown(shown)))
    assert made["maps"].shape == (60, 4, 4)
    np.testing.assert_allclose(made["maps"], np.array([shown] * 60), atol=1e-6)  # whatever the sign of the feature
    assert (made["largest_quarter"], made["regions"]) == pytest.approx((quarter, regions))
    assert spread is None or made["spread"] == pytest.approx(spread)
    assert made["explained"] == pytest.approx(1)


def test_what_has_no_feature_map_is_one_line(view):
    flat = torch.nn.Module()
    flat.num_features, flat.forward_features = 64, lambda images: images.flatten(1)
    for network, words in (
        (None, "eigen_cam needs a feature map .* 01234567 has none: leave 'embedding' out of `of`"),
        (flat, r"eigen_cam needs a feature map .* 01234567 has activations of the shape \(64,\)"),
        (Shown([[1.0]]), r"has activations of the shape \(2, 1, 1\)"),
        (Shown([[1.0, np.nan], [1.0, 1.0]]), "01234567: its activations are not finite"),
    ):
        with pytest.raises(GranularityError, match=words):
            found(view(network))
