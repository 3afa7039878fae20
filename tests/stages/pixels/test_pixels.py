"""Pixels: every image decoded once."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from granularity.data.images import Images
from granularity.stages.pixels import stage as pixels
from granularity.store.artifact import Artifact
from support import tasks
from support.sampling import of_folder, save, table_of


def test_pixels_hold_the_centre_square(tmp_path):
    wide = np.zeros((8, 24), dtype=np.uint8)
    wide[:, 8:16] = 200
    save(tmp_path / "root" / "c" / "a.png", Image.fromarray(wide))
    save(tmp_path / "root" / "c" / "b.png", Image.fromarray(wide.T.copy()))
    samples = of_folder(tmp_path / "root", "c")
    array = tasks.run("pixels", tmp_path / "pixels", {"size": 4}, samples=samples).array("pixels.npy")
    assert (array.shape, array.dtype) == ((2, 4, 4, 1), np.uint8)
    assert (array >= 180).all()  # the filter reaches a little over the edge; a square off the centre holds zeros


def test_pixels_of_the_right_size_are_untouched_and_in_row_order(digits, digits_pixels):
    array = Artifact.open(digits_pixels).array("pixels.npy")
    numbers = table_of(digits)["sample_id"].str.removeprefix("digits/").astype(int)
    expected = np.round(load_digits().images[numbers] * 255 / 16).astype(np.uint8)
    np.testing.assert_array_equal(array[..., 0], expected)


def test_pixels_of_images_that_nobody_hashed_are_those_of_their_folder(
    tmp_path, make_samples, kill_at, checkpoint_always, monkeypatch
):
    """Two folders of the same names and sizes: what was begun for one is not gone on with for the other.

    Without hashes of its images, where they lie is a fact of a sample table.
    """
    monkeypatch.setattr(pixels, "BATCH", 5)
    tables = []
    for seed, folder in enumerate((tmp_path / "one", tmp_path / "other")):
        folder.mkdir()
        files = [f"{i}.png" for i in range(16)]
        for i, file in enumerate(files):
            noise = np.random.default_rng([seed, i]).integers(256, size=(8, 8), dtype=np.uint8)
            Image.fromarray(noise).save(folder / file, compress_level=0)
        sizes = [(folder / file).stat().st_size for file in files]
        columns = {"file": files, "bytes": sizes} | dict.fromkeys(("row", "offset", "sha256"))
        over = {"columns": columns, "root": str(folder), "checksums": "size"}
        kinds = {"kind": ["a", "b"] * 8}
        tables.append(make_samples(folder / "samples", ["train", "val"] * 8, kinds, "kind", **over))
    assert Artifact.open(tables[0]).digest != Artifact.open(tables[1]).digest
    monkeypatch.setattr(pixels, "CHUNK", 5)
    kill_at(Images, "hashed", 12)
    with pytest.raises(kill_at.Killed):
        tasks.run("pixels", tmp_path / "pixels", samples=tables[0])
    calls = kill_at(Images, "hashed", None)
    tasks.run("pixels", tmp_path / "pixels", samples=tables[1])
    assert len(calls) == 16
    tasks.run("pixels", tmp_path / "clean", samples=tables[1])
    assert Artifact.open(tmp_path / "pixels").digest == Artifact.open(tmp_path / "clean").digest
