"""Reading the images of a sample table: upright, in one mode, and every fault named."""

from __future__ import annotations

import io
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data.decoding import decode
from granularity.data.images import Images
from granularity.store.artifacts import Artifact
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


def test_exif_rotation_is_applied(load):
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn me a quarter clockwise"
    upright = load(Image.fromarray(np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint8)), "L", exif=exif)
    np.testing.assert_array_equal(np.asarray(upright), [[4, 1], [5, 2], [6, 3]])


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
        ("a.tif", np.array([[0, 0.25, 1]], dtype=np.float32), "of mode F, go from 0 to 1,"),
        ("a.tif", np.array([[-3, 0, 250]], dtype=np.float32), "of mode F, go from -3 to 250,"),
        ("a.ppm", np.array([[0, 0.25, 1]], dtype=np.float32), "of mode F, go from 0 to 1,"),
        ("a.tif", np.array([[0, 70_000]], dtype=np.int32), "of mode I, go from 0 to 70000,"),
    ],
)
def test_pixels_of_no_known_black_and_white_are_refused(load, name, values, words):
    with pytest.raises(GranularityError, match=rf"class/{name}: cannot be decoded .*{words} .* convert it to 8 bits"):
        load(Image.fromarray(values), "RGB", name)


@pytest.mark.parametrize("wanted", ["L", "RGB"])
@pytest.mark.parametrize(
    ("mode", "name", "options"),
    [
        ("1", "a.png", {}),
        ("1", "a.tif", {}),
        ("L", "a.tif", {}),
        ("LA", "a.png", {}),
        ("LA", "a.tif", {}),
        ("P", "a.png", {}),
        ("P", "a.png", {"transparency": 255}),
        ("P", "a.gif", {"transparency": 255}),
        ("RGBA", "a.png", {}),
        ("CMYK", "a.tif", {}),
    ],
)
def test_black_and_white_are_so_in_every_mode(load, mode, name, options, wanted):
    """Where they are transparent, too."""
    image = Image.fromarray(np.array([[0, 255]], dtype=np.uint8))
    image = (image.convert("RGB") if mode == "CMYK" else image).convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(0)
    read = np.asarray(load(image, wanted, name, **options)).reshape(2, -1)
    assert (read[0] == 0).all() and (read[1] == 255).all()


def test_cmyk_becomes_rgb(load):
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    read = np.asarray(load(red, "RGB", "a.jpg", quality=100)).astype(int)
    assert read.shape == (16, 16, 3)
    assert np.abs(read - [255, 0, 0]).max() <= 12


def test_grey_alpha_and_animation_give_the_mode_asked_for(load):
    assert load(Image.new("LA", (3, 3), (9, 0)), "RGB").mode == "RGB"
    assert load(Image.new("1", (3, 3), 1), "L").getpixel((0, 0)) == 255
    frames = [Image.new("L", (3, 3), value) for value in (5, 200)]
    assert load(frames[0], "L", "a.gif", save_all=True, append_images=frames[1:]).getpixel((0, 0)) == 5


@pytest.fixture
def two_images(tmp_path):
    for name in ("a.png", "b.png"):
        save(tmp_path / "root" / "class" / name, Image.fromarray(COLOURS))
    return tmp_path / "root" / "class" / "a.png"


def stages(file: Path):
    """Sample the folder of a file, then decode it."""
    folder = of_folder(file.parents[1], "class")
    return lambda: tasks.run("pixels", file.parents[2] / "pixels", {"size": 2, "mode": "RGB"}, samples=folder)


def test_a_changed_file_is_named(two_images):
    decode = stages(two_images)
    save(two_images, Image.new("RGB", (2, 2)))
    with pytest.raises(GranularityError, match=rf"{re.escape(str(two_images))}: has changed since"):
        decode()
    assert not (two_images.parents[2] / "pixels").exists()


def test_a_missing_file_is_named(two_images):
    decode = stages(two_images)
    two_images.unlink()
    with pytest.raises(GranularityError, match=rf"{re.escape(str(two_images))}: cannot be read"):
        decode()


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.gif"])
@pytest.mark.parametrize("keep", [0, 0.02, 0.5, 0.9])
def test_a_truncated_file_is_named(two_images, keep, name):
    two_images = two_images.with_name(name)
    save(two_images, Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)))
    data = two_images.read_bytes()
    two_images.write_bytes(data[: int(keep * len(data))])
    decode = stages(two_images)
    with pytest.raises(GranularityError, match=rf"{re.escape(str(two_images))}: cannot be decoded"):
        decode()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("extension", "mode"), [("png", "RGB"), ("png", "P"), ("jpg", "CMYK"), ("gif", "P"), ("bmp", "RGB")]
)
def test_no_corruption_escapes_as_another_error(tmp_path, extension, mode):
    """Whatever bytes are broken, reading gives an image or the one error that names the file."""
    rng = np.random.default_rng(0)
    stream = io.BytesIO()
    noise = Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)).convert(mode)
    noise.save(stream, {"jpg": "JPEG"}.get(extension, extension))
    for i in range(60):
        data = bytearray(stream.getvalue())
        for place in rng.integers(0, len(data), 4):
            data[place] = rng.integers(256)
        file = tmp_path / "root" / "class" / f"{i:02d}.{extension}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data[: rng.integers(1, len(data) + 1)] if i % 2 else data)
    images = Images(Artifact.open(of_folder(tmp_path / "root", "class")))
    refused = 0
    for index in range(len(images)):
        try:
            assert images.load(index, "L").mode == "L"
        except GranularityError as error:
            assert str(tmp_path / "root" / images.table["file"][index]) in str(error)
            refused += 1
    assert refused > 0
