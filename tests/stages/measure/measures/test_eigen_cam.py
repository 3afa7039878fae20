"""Eigen-CAM: maps against NumPy's singular vectors, numbers of maps that are known, and what has no feature map."""

import numpy as np
import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.learning.data.dataset import Data
from granularity.learning.options import Augment
from granularity.stages.measure.measures import eigen_cam
from granularity.stages.measure.view import View
from granularity.store.artifact import Artifact


class Shown(torch.nn.Module):
    """A network with the same activations for every image: float32 [D, H, W]."""

    def __init__(self, shown):
        super().__init__()
        self.shown, self.num_features = torch.as_tensor(np.asarray(shown, np.float32)), len(shown)

    def forward_features(self, images):
        return self.shown.expand(len(images), *self.shown.shape)


@pytest.fixture
def found(digits, digits_pixels):
    def go(network, **options) -> dict:
        data = Data(Artifact.open(digits), Artifact.open(digits_pixels), torch.device("cpu"))
        view = View({"run": "01234567", "epoch": 1}, network, None, ["val"], [], None, data, Augment())
        return {key: value for _, key, value in eigen_cam.measure(view, eigen_cam.Options(**options), 0)}

    return go


@pytest.mark.parametrize("centred", [False, True])
def test_maps_are_those_of_the_first_singular_vector(found, centred):
    shown = np.random.default_rng(0).normal(size=(8, 3, 5)) - 0.5
    made = found(Shown(shown), images=7, centred=centred)
    whole = shown.reshape(8, 15).T
    about = whole - centred * whole.mean(0)
    right = np.linalg.svd(about)[2]
    expected = about @ right[0] * np.sign(right[0] @ whole.mean(0))
    np.testing.assert_allclose(made["maps"], np.array([expected.reshape(3, 5)] * 7), rtol=1e-4, atol=1e-5)
    assert centred or expected.mean() > 0
    share = expected[expected > 0] / expected[expected > 0].sum()
    assert made["spread"] == pytest.approx(np.exp(-(share * np.log(share)).sum()) / 15)
    assert len(set(made["rows"])) == 7


@pytest.mark.parametrize(
    ("at", "expected"), [(range(16), (1, 1)), ([0], (1 / 16, 1)), ([0, 3, 13, 15], (1 / 4, 4)), ([], (1, 1))]
)
def test_a_map_that_is_known_has_its_numbers(found, at, expected):
    shown = np.isin(np.arange(16), list(at)).reshape(4, 4) * 1.0
    made = found(Shown([-shown, 0 * shown]))  # whatever the sign of the feature
    np.testing.assert_allclose(made["maps"], np.array([shown] * 60), atol=1e-6)
    assert (made["spread"], made["regions"]) == pytest.approx(expected)  # a map without a positive part is even


def test_what_has_no_feature_map_is_one_line(found):
    for network, words in (
        (Shown(np.ones(64)), r"eigen_cam needs a feature map .* 01234567 has activations of the shape \(64,\)"),
        (Shown(np.full((2, 2, 2), np.nan)), "01234567: its activations are not finite"),
    ):
        with pytest.raises(GranularityError, match=words):
            found(network)
