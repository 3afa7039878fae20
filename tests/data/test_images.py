"""Reading the images of a sample table: upright, in one mode, and every fault named."""

import io
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.data.decoding import decode
from granularity.data.images import Images
from granularity.store.artifact import Artifact
from support import tasks
from support.sampling import of_folder, save


@pytest.fixture
def load(tmp_path):
    """Save one image beside a plain one, and read it back through a sample table."""

    def through(image: Image.Image, mode: str, name: str = "a.png", **options) -> Image.Image:
        save(tmp_path / "root" / "class" / name, image, **options)
        save(tmp_path / "root" / "class" / "z.png")
        return Images(Artifact.open(of_folder(tmp_path / "root", "class"))).load(0, mode)

    return through


COLOURS = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [10, 20, 30]]], dtype=np.uint8)


def test_palette_images_keep_their_colours(load):
    palette = Image.fromarray(COLOURS).quantize(4)
    assert palette.mode == "P"
    np.testing.assert_array_equal(np.asarray(load(palette, "RGB")), COLOURS)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_sixteen_bit_grey_is_scaled_not_clipped(load, name, mode):
    values = np.array([[0, 255, 256], [32768, 65280, 65535]], dtype=np.uint16)
    read = np.asarray(load(Image.fromarray(values), mode, name)).reshape(2, 3, -1)
    np.testing.assert_array_equal(read[..., 0], [[0, 0, 1], [128, 255, 255]])
    assert (read == read[..., :1]).all()


@pytest.mark.parametrize("largest", [4095, 65535])
def test_sixteen_bit_pgm_is_scaled_by_what_it_calls_white(largest):
    data = b"P5 3 1 %d\n" % largest + np.array([0, largest // 2, largest], dtype=">u2").tobytes()
    assert np.asarray(decode(data, "L")).tolist() == [[0, 127, 255]]


def tiff(values: list[int], **tags: int) -> bytes:
    """A 16-bit TIFF file with other values of its tags."""
    stream = io.BytesIO()
    Image.fromarray(np.array([values], dtype="<u2")).save(stream, "TIFF")
    data = stream.getvalue()
    for name, (tag, old) in {"bits": (258, 16), "white": (262, 1)}.items():
        before, after = (struct.pack("<HHIHH", tag, 3, 1, value, 0) for value in (old, tags.get(name, old)))
        assert data.count(before) == 1
        data = data.replace(before, after)
    return data


def test_grey_tiff_is_scaled_as_its_tags_say():
    assert np.asarray(decode(tiff([0, 256, 65535]), "L")).tolist() == [[0, 1, 255]]
    assert np.asarray(decode(tiff([0, 256, 65535], white=0), "L")).tolist() == [[255, 254, 0]]
    assert np.asarray(decode(tiff([0xF8FF, 0], bits=12), "L")).tolist() == [[255, 128]]  # 0xFFF, 0x800


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("a.tif", np.array([[0, 0.25, 1]], dtype=np.float32), r"\(mode F\) range from 0 to 1,"),
        ("a.tif", np.array([[-3, 0, 250]], dtype=np.float32), r"\(mode F\) range from -3 to 250,"),
        ("a.ppm", np.array([[0, 0.25, 1]], dtype=np.float32), r"\(mode F\) range from 0 to 1,"),
        ("a.tif", np.array([[0, 70_000]], dtype=np.int32), r"\(mode I\) range from 0 to 70000,"),
    ],
)
def test_pixels_of_no_known_black_and_white_are_refused(load, name, values, words):
    with pytest.raises(GranularityError, match=rf"class/{name}: cannot be decoded .*{words} .* convert it to 8 bits"):
        load(Image.fromarray(values), "RGB", name)


@pytest.mark.parametrize(("change", "words"), [(save, "has changed since"), (Path.unlink, "cannot be read")])
def test_a_changed_or_missing_file_is_named(tmp_path, change, words):
    file = tmp_path / "root" / "class" / "a.png"
    for one in (file, file.with_name("b.png")):
        save(one, Image.fromarray(COLOURS))
    samples = of_folder(tmp_path / "root", "class")
    change(file)
    with pytest.raises(GranularityError, match=rf"{re.escape(str(file))}: {words}"):
        tasks.run("pixels", tmp_path / "pixels", {"size": 2, "mode": "RGB"}, samples=samples)
    assert not (tmp_path / "pixels").exists()


def test_an_image_repaired_in_place_is_told_with_the_command_that_takes_it_in(tmp_path, monkeypatch, capsys):
    for number in range(6):
        (tmp_path / f"images/{'ab'[number % 2]}").mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9), 40 * number).save(tmp_path / f"images/{'ab'[number % 2]}/{number}.png")
    options = {"source": "folder", "root": str(tmp_path / "images"), "ranks": ["kind"], "target": "kind"}
    options = json.dumps({**options, "validation": 2, "train_size": 4})
    made = str(tmp_path / "results/mine/samples")
    cli.app(["samples", "--options", options, "--output", made], standalone_mode=False)
    Image.new("L", (9, 9), 255).save(tmp_path / "images/a/0.png")
    monkeypatch.setenv("GRANULARITY_COMMAND", "snakemake --configfile mine.yaml")
    words = ["pixels", "--samples", made, "--output", str(tmp_path / "results/mine/pixels")]
    with pytest.raises(SystemExit):
        cli.told(lambda: cli.app(words, standalone_mode=False))
    line = capsys.readouterr().err.splitlines()[-1]
    assert "0.png: has changed since" in line
    assert line.endswith("recompute the samples: snakemake --configfile mine.yaml -R make_samples")
