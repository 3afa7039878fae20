"""Robustness: what shifts do to pixels, and that a probe's errors on shifted images follow what its network sees."""

import numpy as np
import pytest
import torch

from granularity.stages.measure.measures.robustness import shifted

MEAN = torch.tensor([0.2, 0.4, 0.6])[:, None, None]
IMAGES = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("shift", "colour"), [("red", (150, 50, 50)), ("inverted", (105, 205, 205)), ("mean", (51, 102, 153))]
)
def test_a_border_covers_an_eighth_of_the_side_and_nothing_else(shift, colour):
    found = shifted(IMAGES, shift, MEAN, None)
    assert torch.equal(found[..., 2:-2, 2:-2], IMAGES[..., 2:-2, 2:-2])
    for edge in (found[..., :2, :], found[..., -2:, :], found[..., :2], found[..., -2:]):
        np.testing.assert_allclose(
            (edge * 255).permute(0, 2, 3, 1).reshape(-1, 3), [colour] * (edge.numel() // 3), rtol=1e-5
        )


def test_grey_noise_and_blur():
    grey = shifted(IMAGES, "grey", MEAN, None)
    assert grey.shape == IMAGES.shape and grey.std(1).max() < 1e-6 and torch.allclose(grey.mean(1), IMAGES.mean(1))
    noisy = [shifted(IMAGES, "noise", MEAN, torch.Generator().manual_seed(0)) for _ in range(2)]
    assert torch.equal(*noisy) and noisy[0].min() >= 0 and noisy[0].max() <= 1
    assert (noisy[0] - IMAGES).std().item() == pytest.approx(0.09, abs=0.01)  # of 0.1, less what is clipped
    np.testing.assert_allclose(
        shifted(IMAGES, "blur", MEAN, None)[0, 0, 5, 5], IMAGES[0, 0, 4:7, 4:7].mean(), rtol=1e-5
    )
