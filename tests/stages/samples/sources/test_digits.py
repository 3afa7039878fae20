"""scikit-learn's digits."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from granularity.stages.samples.sources import digits as digits_source
from support.sampling import section


@pytest.fixture(scope="module")
def all_digits():
    found = digits_source.read(section())
    return found.frame, found.images


def test_digits_are_scikit_learns_in_its_order(all_digits):
    frame, pngs = all_digits
    truth = load_digits()
    assert len(frame) == len(pngs) == 1797
    assert frame["sample_id"].is_unique
    assert frame["sample_id"].iloc[[0, 1796]].tolist() == ["digits/0000", "digits/1796"]
    decoded = np.stack([np.asarray(Image.open(io.BytesIO(png))) for png in pngs])
    np.testing.assert_array_equal(decoded, np.round(truth.images * 255 / 16).astype(np.uint8))
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert [names.index(name) for name in frame["digit"]] == truth.target.tolist()


def test_loops_of_digits(all_digits):
    frame, _ = all_digits
    assert frame.groupby("loops")["digit"].agg(set).to_dict() == {
        "no closed loop": {"one", "two", "three", "five", "seven"},
        "one closed loop": {"zero", "four", "six", "nine"},
        "two closed loops": {"eight"},
    }
