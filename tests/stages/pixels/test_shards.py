"""Images kept as JPEG in shards: what is in them, that kills leave no trace, and that damage is found and mended."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.data.shards import Shards, pictures
from granularity.stages.pixels import stage as pixels
from granularity.store.artifact import Artifact
from support import tasks, writing
from support.photographs import SHAPES, folder_of
from support.tiny_chain import harmed

SIZE = 20
JPEG = {"size": SIZE, "mode": "RGB", "format": "jpeg"}


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("photographs")
    folder = root / "samples"
    options = {"source": "folder", "root": str(folder_of(root / "images")), "ranks": ["kind"], "target": "kind"}
    tasks.run("samples", folder, options | {"validation": 12, "train_size": "all", "checksums": "size"})
    return folder


@pytest.fixture(scope="module")
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pixels, "SHARD_BYTES", 6000)
        yield


@pytest.fixture(scope="module")
def made(samples, small_shards) -> Artifact:
    return tasks.run("pixels", samples.parent / "pixels", JPEG, samples=samples)


def test_rectangles_keep_their_short_side_and_their_shape(samples, made):
    shards, images = Shards(made), Images(Artifact.open(samples))
    assert len(shards) == len(images) == 60
    for i in range(len(images)):
        whole, kept = images.load(i), shards.load(i)
        assert min(kept.size) == SIZE
        ratio = min(8.0, max(whole.size) / min(whole.size))
        assert max(kept.size) == pytest.approx(SIZE * ratio, abs=0.5)
        assert (kept.width > kept.height) == (whole.width > whole.height)
        if ratio < 8:
            close = np.asarray(whole.resize(kept.size, Image.Resampling.BICUBIC), dtype=float)
            assert np.abs(close - np.asarray(kept)).mean() < 12
    assert {max(size) for size in zip(shards.width, shards.height, strict=True)} > {8 * SIZE}  # that of (17, 400)
    assert len(SHAPES) == 6


def test_the_centre_square_is_that_of_the_raw_pixels(samples, made, tmp_path):
    raw = pictures(tasks.run("pixels", tmp_path / "raw", JPEG | {"format": "raw"}, samples=samples))
    jpeg = pictures(made)
    for i in range(60):
        assert jpeg[i].shape == raw[i].shape == (SIZE, SIZE, 3)
        assert np.abs(jpeg[i].astype(float) - raw[i]).mean() < 12


def test_the_index_has_the_hash_of_each_original(samples, made):
    table, root = Artifact.open(samples).table("samples.parquet"), Path(Artifact.open(samples).params["root"])
    expected = [hashlib.sha256((root / file).read_bytes()).digest() for file in table["file"]]
    assert table["sha256"].isna().all() and made.table("index.parquet")["sha256"].tolist() == expected


@pytest.mark.parametrize(("threads", "batch", "chunk"), [(3, 7, 7), (1, 1, 50)])
def test_shards_do_not_depend_on_threads_batches_or_chunks(tmp_path, samples, made, monkeypatch, threads, batch, chunk):
    monkeypatch.setattr(pixels, "BATCH", batch)
    monkeypatch.setattr(pixels, "CHUNK", chunk)
    assert tasks.run("pixels", tmp_path / "out", JPEG, threads=threads, samples=samples).digest == made.digest


@pytest.mark.parametrize("at", [14, 60])
def test_a_killed_job_goes_on_in_the_midst_of_a_shard(tmp_path, samples, made, kill_at, monkeypatch, at):
    monkeypatch.setattr(pixels, "BATCH", 4)
    monkeypatch.setattr(pixels, "CHUNK", 4)
    kill_at(Images, "hashed", at)
    with pytest.raises(kill_at.Killed):
        tasks.run("pixels", tmp_path / "out", JPEG, samples=samples)
    calls = kill_at(Images, "hashed", None)
    tasks.run("pixels", tmp_path / "out", JPEG, samples=samples)
    assert len(calls) == 60 - (at - 1) // 4 * 4
    assert Artifact.open(tmp_path / "out").digest == made.digest
    assert len(made.manifest["files"]) > 5
    assert writing.names(tmp_path) == ["out"]


@pytest.mark.parametrize("place", [0, 700, 2500, -1])
def test_a_flipped_byte_is_found_where_it_is_read_and_mended(samples, made, place, capsys):
    with harmed(made.path):
        file = made.path / "shards/00001.jpegs"
        file.chmod(0o644)
        data = bytearray(file.read_bytes())
        data[place] ^= 4
        file.write_bytes(data)
        shards = Shards(Artifact.open(made.path))  # shards are not hashed
        errors = []
        for i in range(60):
            try:
                shards.load(i)
            except GranularityError as error:
                errors.append(str(error))
        (error,) = errors
        assert "shards/00001.jpegs: the image of row" in error
        assert "its CRC-32 differs from the index" in error
        assert f"delete {made.path}.stamp" in error
        assert cli.app(["verify", str(made.path)], standalone_mode=False) == 1
        assert "00001.jpegs: corrupt" in capsys.readouterr().out
    again = tasks.run("pixels", made.path, JPEG, samples=samples, anew=False)
    assert again.digest == made.digest


@pytest.mark.parametrize("harm", ["missing", "truncated", "pipe"])
def test_a_shard_that_is_not_what_it_was_is_refused_at_once(made, harm):
    with harmed(made.path):
        file = made.path / "shards/00002.jpegs"
        file.chmod(0o644)
        if harm == "truncated":
            os.truncate(file, 1000)
        else:
            file.unlink()
            if harm == "pipe":
                os.mkfifo(file)
        with pytest.raises(GranularityError, match=r"shards/000.*(missing|corrupt|not a regular)"):
            Shards(Artifact.open(made.path))


def test_quality_counts_for_jpeg_alone(samples, made, tmp_path):
    assert tasks.run("pixels", tmp_path / "worse", JPEG | {"quality": 50}, samples=samples).size < made.size
    raw = {"size": 4, "mode": "RGB"}
    first, other = (tasks.run("pixels", tmp_path / "raw", raw | more, samples=samples) for more in ({}, {"quality": 3}))
    assert first.manifest["key"] == other.manifest["key"] and "quality" not in first.params
