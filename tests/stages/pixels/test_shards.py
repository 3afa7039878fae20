"""Images kept as JPEG in shards: what is in them, that kills leave no trace, and that damage is found and mended."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, features

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.data.shards import Shards, pictures
from granularity.stages.pixels import stage as pixels
from granularity.store import artifacts
from granularity.store.artifacts import Artifact
from support import tasks, writing
from support.photographs import SHAPES, folder_of
from support.pictures import moments_of
from support.sampling import of_folder
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
    assert table["sha256"].isna().all()
    found = made.table("index.parquet")
    assert found["sample_id"].tolist() == table["sample_id"].tolist()
    expected = [hashlib.sha256((root / file).read_bytes()).digest() for file in table["file"]]
    assert found["sha256"].tolist() == expected


def test_moments_are_those_of_the_rectangles(samples, made):
    split = Artifact.open(samples).table("samples.parquet")["split"]
    found = made.json("moments.json")
    shards = Shards(made)
    for name in ("train", "val"):
        kept = [np.asarray(shards.load(int(i))).reshape(1, -1, 1, 3) for i in np.flatnonzero(split == name)]
        together = moments_of(np.array([name]), np.concatenate(kept, axis=1))[name]
        assert found[name]["pixels"] == together["pixels"]
        np.testing.assert_allclose(found[name]["sum"], together["sum"], rtol=0.01)  # JPEG loses a little


def test_grey_images(samples, tmp_path):
    shards = Shards(tasks.run("pixels", tmp_path / "grey", JPEG | {"mode": "L"}, samples=samples))
    assert shards.load(3).mode == "L"
    assert shards[3].shape == (SIZE, SIZE, 1)


def test_comments_of_the_originals_are_not_kept(tmp_path):
    root = folder_of(tmp_path / "images", 3, ending="jpg")
    file = root / "c0/0000.jpg"
    with Image.open(file) as image:
        image.save(file, comment=b"taken at my home", dpi=(300, 300), exif=Image.Exif())
    shards = Shards(tasks.run("pixels", tmp_path / "pixels", JPEG, samples=of_folder(root, "kind")))
    assert all(b"taken at" not in shards.read(i) for i in range(len(shards)))


# ---------------------------------------------------------------- the same bytes, however they were made


@pytest.mark.parametrize(("threads", "batch", "chunk"), [(3, 7, 7), (1, 1, 50), (2, 256, 4096)])
def test_shards_do_not_depend_on_threads_batches_or_chunks(tmp_path, samples, made, monkeypatch, threads, batch, chunk):
    monkeypatch.setattr(pixels, "BATCH", batch)
    monkeypatch.setattr(pixels, "CHUNK", chunk)
    assert tasks.run("pixels", tmp_path / "out", JPEG, threads=threads, samples=samples).digest == made.digest


@pytest.mark.parametrize("at", [1, 14, 35, 60])
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


def test_any_number_of_threads_reads(made):
    shards = Shards(made)
    expected = [shards.read(i) for i in range(60)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(shards.read, [*range(60)] * 20)) == expected * 20


# ---------------------------------------------------------------- damage


def open_shards(folder: Path) -> Shards:
    return Shards(Artifact.open(folder))


def flip(file: Path, place: int) -> None:
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[place] ^= 4
    file.write_bytes(data)


@pytest.mark.parametrize("place", [0, 700, 2500, -1])
def test_a_flipped_byte_is_found_where_it_is_read_and_mended(samples, made, place, capsys):
    with harmed(made.path):
        flip(made.path / "shards/00001.jpegs", place)
        shards = open_shards(made.path)  # shards are not hashed
        errors = []
        for i in range(60):
            try:
                shards.load(i)
            except GranularityError as error:
                errors.append(str(error))
        (error,) = errors
        assert "shards/00001.jpegs: the image of row" in error
        assert "its CRC-32 is not the index's" in error
        assert f"delete {made.path}.stamp" in error
        assert cli.app(["verify", str(made.path)], standalone_mode=False) == 1
        assert "00001.jpegs: corrupt" in capsys.readouterr().out
    again = tasks.run("pixels", made.path, JPEG, samples=samples, anew=False)
    assert again.digest == made.digest


def test_a_damaged_shard_is_made_again_by_its_job(samples, tmp_path):
    folder = tmp_path / "out"
    digest = tasks.run("pixels", folder, JPEG, samples=samples).digest
    flip(folder / "shards/00000.jpegs", 100)
    assert tasks.run("pixels", folder, JPEG, samples=samples, anew=False).digest == digest
    assert list(open_shards(folder).load(0).size) == [27, 20]


@pytest.mark.parametrize("harm", ["missing", "truncated", "pipe", "more"])
def test_a_shard_that_is_not_what_it_was_is_refused_at_once(made, harm):
    with harmed(made.path):
        file = made.path / "shards/00002.jpegs"
        file.chmod(0o644)
        if harm == "truncated":
            os.truncate(file, 1000)
        elif harm == "more":
            shutil.copy(file, made.path / "shards/00099.jpegs")
        else:
            file.unlink()
            if harm == "pipe":
                os.mkfifo(file)
        with pytest.raises(GranularityError, match=r"shards/000.*(missing|corrupt|no regular|not listed)"):
            open_shards(made.path)


@pytest.mark.parametrize("harm", ["missing", "emptied", "pipe"])
def test_a_shard_that_vanishes_while_it_is_used_is_a_line(made, harm):
    with harmed(made.path):
        shards = open_shards(made.path)
        file = made.path / "shards/00000.jpegs"
        file.unlink()
        if harm == "emptied":
            file.write_bytes(b"")
        elif harm == "pipe":
            os.mkfifo(file)
        with pytest.raises(GranularityError, match=r"shards/00000\.jpegs: .*delete .*\.stamp, and snakemake makes"):
            shards.load(0)


def test_a_truncated_index_is_refused(made):
    with harmed(made.path):
        file = made.path / "index.parquet"
        file.chmod(0o644)
        file.write_bytes(file.read_bytes()[:-30])
        with pytest.raises(GranularityError, match=r"index\.parquet: corrupt"):
            Artifact.open(made.path)


FORGED = {
    "another file": ("file", 99),
    "a file below zero": ("file", -1),
    "an offset below zero": ("offset", -5),
    "an offset behind the end": ("offset", 2**31 - 1),
    "more bytes than there are": ("bytes", 2**31 - 1),
    "no bytes": ("bytes", 0),
    "bytes below zero": ("bytes", -7),
    "a short side that is another": ("height", 3),
    "a long side beyond all bounds": ("width", 2**31 - 1),
}


@pytest.mark.parametrize("what", FORGED)
def test_an_index_that_leads_elsewhere_is_refused(tmp_path, samples, made, what):
    name, value = FORGED[what]
    with pytest.raises(GranularityError, match=r"index\.parquet: row 7 leads to no image"):
        Shards(forged(tmp_path, samples, made, lambda table: table[name].__setitem__(7, value)))


def test_an_index_that_leads_to_another_image_is_found_when_it_is_read(tmp_path, samples, made):
    def swap(table: dict) -> None:
        for name in ("file", "offset", "bytes"):
            table[name][7] = table[name][9]

    found = Shards(forged(tmp_path, samples, made, swap))
    with pytest.raises(GranularityError, match="row 7 is corrupt"):
        found.load(7)


def test_a_picture_of_another_kind_is_refused(tmp_path, samples, made):
    """Whoever makes the checksums anew has still to put a JPEG there, of the shape that the index says."""
    shards = Shards(made)
    other = int((shards.width != shards.width[0]).argmax())
    for put in (b"no picture", shards.read(other), png()):
        with pytest.raises(GranularityError, match="row 0 is corrupt"):
            Shards(forged(tmp_path, samples, made, lambda table: None, put)).load(0)
        shutil.rmtree(tmp_path / ".store")
        (tmp_path / "forged").unlink()


def png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (SIZE, SIZE)).save(stream, "PNG")
    return stream.getvalue()


def forged(folder: Path, samples: Path, made: Artifact, change, first: bytes | None = None) -> Artifact:
    """An artifact like another, its index changed; `first`: other bytes as the first image, and their checksum."""
    table = pq.read_table(made.path / "index.parquet")
    columns = {name: table[name].to_pylist() for name in table.column_names}
    change(columns)
    data = (made.path / "shards/00000.jpegs").read_bytes()
    if first is not None:
        import zlib

        data = first + data[len(first) :]
        columns["bytes"][0], columns["crc32"][0] = len(first), zlib.crc32(first)
    inputs, params = {"samples": Artifact.open(samples)}, made.facts
    with writing.create(folder / "forged", "pixels", inputs=inputs, params=params, **writing.unlike_any()) as out:
        out.table("index.parquet", pa.table(columns, table.schema))
        out.json("moments.json", made.json("moments.json"))
        for name in made.manifest["files"]:
            if name.startswith("shards/"):
                out.path(name).write_bytes(data if name.endswith("00000.jpegs") else (made.path / name).read_bytes())
                out.described[name] = {artifacts.CHECKED_BY: "index.parquet"}
    return Artifact.open(folder / "forged")


# ---------------------------------------------------------------- what may lack


def test_a_pillow_without_jpeg_is_a_line(samples, made, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "check", lambda name: name != "jpg")
    with pytest.raises(GranularityError, match=r"pixels\.format: jpeg: this Pillow was built without the JPEG codec"):
        tasks.run("pixels", tmp_path / "out", JPEG, samples=samples)
    with pytest.raises(GranularityError, match="without the JPEG codec"):
        Shards(made)


def test_quality_counts_for_jpeg_alone(samples, made, tmp_path):
    worse = tasks.run("pixels", tmp_path / "worse", JPEG | {"quality": 50}, samples=samples)
    assert worse.size < made.size
    raw = {"size": 4, "mode": "RGB"}
    first = tasks.run("pixels", tmp_path / "raw", raw, samples=samples)
    assert (
        first.manifest["key"]
        == tasks.run("pixels", tmp_path / "q", raw | {"quality": 3}, samples=samples).manifest["key"]
    )
    assert json.dumps(first.params) == json.dumps({"size": 4, "mode": "RGB", "format": "raw"})
