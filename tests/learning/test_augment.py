"""Augmentation and the order of images."""

from __future__ import annotations

import pytest
import torch

from granularity.learning.augment import augment, centre_crop
from granularity.learning.loop import Batches
from granularity.learning.options import Augment

IMAGES = torch.arange(2 * 3 * 6 * 6, dtype=torch.float32).reshape(2, 3, 6, 6)


def test_without_augmentation_images_are_untouched():
    assert augment(IMAGES, Augment(), 0, 0) is IMAGES


@pytest.mark.parametrize(
    ("pad", "crop", "side"), [(0, None, 6), (2, None, 6), (0, 4, 4), (2, 9, 9), (1, 8, 8), (2, 1, 1)]
)
@pytest.mark.parametrize("flip", [False, True])
def test_pad_and_crop_give_windows_of_the_padded_image(pad, crop, side, flip):
    padded = torch.nn.functional.pad(IMAGES, [pad] * 4)
    found = augment(IMAGES, Augment(flip=flip, pad=pad, crop=crop), 0, 3)
    assert found.shape == (2, 3, side, side)
    for image, whole in zip(found, padded, strict=True):
        places = range(whole.shape[-1] - side + 1)
        windows = [whole[:, y : y + side, x : x + side] for y in places for x in places]
        mirrored = [window.flip(2) for window in windows] if flip else []
        assert any(torch.equal(image, window) for window in windows + mirrored)


def test_every_window_and_both_sides_are_drawn():
    one = torch.arange(9.0).reshape(1, 1, 3, 3).expand(4000, 1, 3, 3)
    found = augment(one, Augment(flip=True, crop=2), 0, 0).reshape(4000, 4)
    kinds, counts = torch.unique(found, dim=0, return_counts=True)
    assert len(kinds) == 2 * 4
    assert counts.min() > 400  # of 500


def test_flip_mirrors_left_to_right_about_half_of_the_images():
    many = torch.rand(1000, 2, 5, 5)
    found = augment(many, Augment(flip=True), 1, 2)
    same = torch.tensor([torch.equal(a, b) for a, b in zip(found, many, strict=True)])
    mirrored = torch.tensor([torch.equal(a, b.flip(2)) for a, b in zip(found, many, strict=True)])
    assert (same ^ mirrored).all()
    assert 400 < mirrored.sum() < 600


def test_augmentation_is_a_function_of_seed_and_step():
    options = Augment(flip=True, pad=2)
    many = torch.rand(50, 1, 6, 6)
    first = augment(many, options, 1, 2)
    torch.manual_seed(123)
    assert torch.equal(augment(many, options, 1, 2), first)
    assert not torch.equal(augment(many, options, 1, 3), first)
    assert not torch.equal(augment(many, options, 2, 2), first)


@pytest.mark.parametrize(("crop", "side", "start"), [(None, 6, 0), (4, 4, 1), (5, 5, 0), (9, 6, 0)])
def test_evaluation_sees_the_centre(crop, side, start):
    found = centre_crop(IMAGES, Augment(pad=2, crop=crop))
    assert torch.equal(found, IMAGES[:, :, start : start + side, start : start + side])


def test_an_epoch_holds_every_image_at_most_once_and_whole_batches_only():
    batches = Batches(23, 5, seed=0)
    assert batches.per_epoch == 4
    epochs = [torch.cat([batches(step) for step in range(4 * e, 4 * e + 4)]).tolist() for e in range(3)]
    assert all(len(epoch) == len(set(epoch)) == 20 for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert set(epochs[0]) | set(epochs[1]) | set(epochs[2]) == set(range(23))
    fresh = Batches(23, 5, seed=0)
    assert [fresh(step).tolist() for step in (7, 2)] == [batches(step).tolist() for step in (7, 2)]
    assert Batches(23, 5, seed=1)(0).tolist() != batches(0).tolist()
