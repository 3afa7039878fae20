"""Images made ready in two parts, against open_clip's own transform of one."""

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from torchvision.transforms import Compose, Resize, ToTensor

from granularity.base.errors import GranularityError
from granularity.learning.networks.preprocessing import Preprocessing


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("size", [(40, 30), (17, 90), (24, 24)])
def test_the_numbers_are_those_of_open_clip(mode, size):
    transform = open_clip.image_transform(24, is_train=False, resize_mode=mode)
    noise = np.random.default_rng(0).integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    theirs = transform(image)
    prepared = Preprocessing(transform)
    assert prepared.shape == tuple(theirs.shape[1:])
    (ours,) = prepared.numbers(torch.from_numpy(prepared.pixels(image).copy())[None])
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("transform", [lambda image: image, Compose([Resize(8), ToTensor()])])
def test_a_transform_of_another_kind_is_refused(transform):
    with pytest.raises(GranularityError, match="is not one of open_clip's"):
        Preprocessing(transform)
