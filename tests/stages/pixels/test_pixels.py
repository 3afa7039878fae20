"""Pixels: every image decoded once."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from granularity.data.images import Images
from granularity.stages.pixels import stage as pixels
from granularity.store.artifacts import Artifact
from support import tasks, writing
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


@pytest.mark.parametrize(("threads", "chunk"), [(1, 1), (2, 7), (1, 180)])
def test_pixels_do_not_depend_on_threads_or_chunks(tmp_path, digits, digits_pixels, monkeypatch, threads, chunk):
    monkeypatch.setattr(pixels, "CHUNK", chunk)
    assert (
        tasks.run("pixels", tmp_path / "pixels", threads=threads, samples=digits).digest
        == Artifact.open(digits_pixels).digest
    )


def test_decoding_resumes_where_it_was_killed(tmp_path, digits, digits_pixels, kill_at, monkeypatch):
    monkeypatch.setattr(pixels, "CHUNK", 20)
    kill_at(Images, "hashed", 75)
    with pytest.raises(kill_at.Killed):
        tasks.run("pixels", tmp_path / "pixels", samples=digits)
    calls = kill_at(Images, "hashed", None)
    tasks.run("pixels", tmp_path / "pixels", samples=digits)
    assert min(index for _, index, _ in calls) == 60  # three chunks of 20 were finished
    assert Artifact.open(tmp_path / "pixels").digest == Artifact.open(digits_pixels).digest
    assert writing.names(tmp_path) == ["pixels"]


def test_decoding_resumed_with_another_chunk_size_is_the_same(tmp_path, digits, digits_pixels, kill_at, monkeypatch):
    monkeypatch.setattr(pixels, "CHUNK", 20)
    kill_at(Images, "hashed", 75)
    with pytest.raises(kill_at.Killed):
        tasks.run("pixels", tmp_path / "pixels", samples=digits)
    monkeypatch.undo()
    monkeypatch.setattr(pixels, "CHUNK", 33)
    tasks.run("pixels", tmp_path / "pixels", samples=digits)
    assert Artifact.open(tmp_path / "pixels").digest == Artifact.open(digits_pixels).digest
