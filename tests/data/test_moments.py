"""Channel moments: exact, and the same as from the pixels themselves."""

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.data import moments
from granularity.store.artifact import Artifact
from support import writing
from support.photographs import moments_of


def test_moments_are_those_of_numpy_over_the_split(digits_pixels, digits):
    artifact = Artifact.open(digits_pixels)
    train = (Artifact.open(digits).table("samples.parquet")["split"] == "train").to_numpy()
    values = artifact.array("pixels.npy")[train].astype(np.float64) / 255
    mean, std = moments.moments(artifact, 1)
    np.testing.assert_allclose([mean, std], [values.mean((0, 1, 2)), values.std((0, 1, 2))], rtol=1e-14)
    assert artifact.json("moments.json") == moments_of(np.where(train, "train", "val"), artifact.array("pixels.npy"))


def test_the_sums_of_a_huge_set_lose_no_digit(tmp_path):
    """Ten million images of 256 px, of two values one apart: what a difference of float64 sums would get wrong."""
    half = 10**7 * 256**2 // 2
    sums = {"pixels": 2 * half, "sum": [half * (254 + 255)], "squares": [half * (254**2 + 255**2)]}
    with writing.create(tmp_path / "made", "pixels", **writing.unlike_any()) as out:
        out.json(moments.FILE, {"train": sums})
    mean, std = moments.moments(Artifact.open(tmp_path / "made"), 1)
    assert (mean[0], std[0]) == (254.5 / 255, pytest.approx(0.5 / 255, rel=1e-15))


@pytest.mark.parametrize(
    "train",
    [
        None,
        {},
        3,
        {"pixels": 0, "sum": [0], "squares": [0]},
        {"pixels": 4, "sum": [1, 2], "squares": [1, 2]},
        {"pixels": 4, "sum": [1.5], "squares": [1]},
    ],
)
def test_forged_moments_are_refused(tmp_path, train):
    with writing.create(tmp_path / "made", "pixels", **writing.unlike_any()) as out:
        out.json(moments.FILE, {} if train is None else {"train": train})
    with pytest.raises(GranularityError, match=r"moments\.json: .*must"):
        moments.moments(Artifact.open(tmp_path / "made"), 1)
