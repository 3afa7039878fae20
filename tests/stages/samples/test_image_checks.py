"""Looking at every image before it is used: what is an error, what a note, and what happens then."""

import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from granularity.base.errors import GranularityError
from granularity.data.images import Images, Reader
from granularity.stages.samples.checks import look
from granularity.store.artifact import Artifact
from support.sampling import make, section

ROTATED = Image.Exif()
ROTATED[0x0112] = 6


def noise(seed: int = 0, size: tuple[int, int] = (40, 30), mode: str = "RGB") -> Image.Image:
    """Unlike any other, and too rough to be compressed to nothing."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)).convert(mode)


def encoded(image: Image.Image, format: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def png(*chunks: tuple[bytes, bytes], size: tuple[int, int] = (1, 1)) -> bytes:
    """A grey PNG file (W3C's specification) of any size it likes to claim, with the chunks put before its one pixel."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 0, 0, 0, 0)), *chunks, (b"IDAT", zlib.compress(b"\0\7"))]
    parts.append((b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )


@pytest.fixture
def root(tmp_path) -> Path:
    """A folder of the classes cat and dog, and of the splits train and val; a good image in each."""
    for i, name in enumerate(["train/cat", "train/dog", "val/cat", "val/dog"]):
        (tmp_path / "root" / name).mkdir(parents=True)
        (tmp_path / "root" / name / "good.png").write_bytes(encoded(noise(1000 + i)))
    return tmp_path / "root"


def check(root: Path, policy: str = "skip", output: str = "samples") -> Artifact:
    params = section(source="folder", root=root, ranks=["kind"], target="kind", check_images=policy)
    make(params, root.parent / output)
    return Artifact.open(root.parent / output, "samples")


def findings(artifact: Artifact) -> dict[str, list[tuple[str, str]]]:
    """By image: the names of its findings, and their severity."""
    table = artifact.table("findings.parquet")
    assert table.columns.tolist() == ["sample_id", "file", "finding", "severity", "detail"]
    return {
        name: list(zip(part["finding"], part["severity"], strict=True))
        for name, part in table.groupby("sample_id", sort=False)
    }


def ids(artifact: Artifact) -> list[str]:
    return artifact.table("samples.parquet", ["sample_id"])["sample_id"].tolist()


def cut(data: bytes, share: float = 0.5) -> bytes:
    return data[: int(share * len(data))]


BROKEN = {
    "empty.jpg": (b"", "empty"),
    "magic alone.jpg": (b"\xff\xd8\xff", "corrupt"),
    "eps.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n", "corrupt"),
    "no magic number.bmp": (encoded(noise(), "TGA"), "corrupt"),
    "cut.png": (cut(encoded(noise())), "truncated"),
    "cut.jpg": (cut(encoded(noise(size=(200, 100)), "JPEG")), "truncated"),
    "almost whole.jpg": (encoded(noise(1), "JPEG")[:-40], "truncated"),
    "cut.gif": (cut(encoded(noise(mode="P"), "GIF")), "truncated"),
    "cut.webp": (cut(encoded(noise(), "WEBP")), "truncated"),
    "bits.png": (png((b"IDAT", b"no zlib stream")), "corrupt"),
    "crc.png": (encoded(noise()).replace(b"IDAT", b"IDAX"), "corrupt"),
    "bomb.png": (png(size=(30_000, 30_000)), "bomb"),
    "half a bomb.png": (png(size=(9_500, 9_500)), "bomb"),  # Pillow only warns up to twice its limit
    "text bomb.png": (png((b"zTXt", b"Comment\0\0" + zlib.compress(bytes(1 << 24), 1))), "bomb"),
    "colours bomb.png": (png((b"iCCP", b"Colours\0\0" + zlib.compress(bytes(1 << 24), 1))), "bomb"),
    "texts bomb.png": (png(*[(b"zTXt", b"Comment\0\0" + zlib.compress(bytes((1 << 20) - 9), 1))] * 70), "bomb"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory) -> Path:
    """All of them at once, and a good image in each split."""
    root = tmp_path_factory.mktemp("broken") / "root"
    for name, data in [("train/cat/good.png", encoded(noise(1))), ("val/cat/good.png", encoded(noise(2)))]:
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(data)
    for name, (data, _) in BROKEN.items():
        (root / "train/cat" / name).write_bytes(data)
    return root


def test_every_error_has_its_name(broken):
    artifact = check(broken)
    assert findings(artifact) == {
        f"train/cat/{name}": [(finding, "error")] for name, (_, finding) in sorted(BROKEN.items())
    }
    assert ids(artifact) == ["train/cat/good.png", "val/cat/good.png"]


def test_failing_names_all_in_the_log_and_three_in_the_error(broken, capsys):
    with pytest.raises(GranularityError) as error:
        check(broken, "fail", output="failed")
    text = str(error.value)
    assert text.startswith("samples.check_images: 16 of 18 images cannot be used: truncated: train/cat/almost ")
    assert text.count("train/cat/") == 3 and "train/cat/bomb.png" in text and "\n" not in text
    log = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in log if line.startswith("error: ")] == sorted(
        f"train/cat/{x}" for x in BROKEN
    )
    assert not list(broken.parent.glob("*failed*"))


def test_no_bomb_goes_off(broken, monkeypatch):
    loaded = []
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: loaded.append(self.size))
    reader = Reader(broken)
    for name in ("bomb.png", "half a bomb.png", "text bomb.png", "colours bomb.png", "texts bomb.png"):
        tracemalloc.start()
        look(reader, f"train/cat/{name}", None, None, None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (5 if name != "texts bomb.png" else 140) << 20, name  # Pillow takes 64 MiB of short texts
    assert loaded == []


def test_a_split_must_not_become_empty(root):
    for file in root.glob("val/*/*.png"):
        file.write_bytes(b"")
    with pytest.raises(GranularityError, match="no image of the split 'val' can be used"):
        check(root)
    assert not (root.parent / "samples").exists()


def clear(image: Image.Image) -> Image.Image:
    image.putalpha(99)
    return image


FRAMES = {"save_all": True, "append_images": [noise(8), noise(9)]}
ODD = {
    "cmyk.jpg": (encoded(noise(20, mode="CMYK"), "JPEG"), ["cmyk"]),
    "palette.png": (encoded(noise(21, mode="P")), ["palette"]),
    "grey16.png": (encoded(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50)), ["sixteen_bit"]),
    "grey16.tif": (
        encoded(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40)), "TIFF"),
        ["sixteen_bit", "narrow_range"],
    ),
    "alpha.png": (encoded(noise(24, mode="RGBA")), ["alpha"]),
    "one colour clear.png": (encoded(noise(26), transparency=(1, 2, 3)), ["alpha"]),
    "alpha.webp": (encoded(clear(noise(28)), "WEBP"), ["alpha"]),
    "film.gif": (encoded(noise(29, mode="P"), "GIF", **FRAMES), ["palette", "animated"]),
    "film.webp": (encoded(noise(31), "WEBP", **FRAMES), ["animated"]),
    "two lenses.jpg": (encoded(noise(33), "MPO", **FRAMES), ["animated"]),
    "turned.jpg": (encoded(noise(34), "JPEG", exif=ROTATED), ["rotated"]),
    "großer Bär.png": (encoded(noise(36)), ["not_ascii"]),
    "upright.jpg": (encoded(noise(39), "JPEG", exif=Image.Exif()), []),
}


def test_every_note_has_its_name_and_leaves_nothing_out(root):
    for name, (data, _) in ODD.items():
        (root / "train/dog" / name).write_bytes(data)
    artifact = check(root, "fail")
    assert findings(artifact) == {
        f"train/dog/{name}": [(note, "note") for note in notes] for name, (_, notes) in sorted(ODD.items()) if notes
    }
    assert len(ids(artifact)) == 4 + len(ODD)
    assert artifact.summary["left_out"] == {"train": 0, "val": 0}
    assert artifact.summary["findings"]["animated"] == 3
    images = Images(artifact)
    for i in range(len(images)):
        images.load(i)


def test_equal_bytes_within_and_across_splits(root):
    one, two, three = (encoded(noise(seed)) for seed in (1, 2, 3))
    names = ["train/cat/1.png", "train/cat/1 again.png", "train/dog/1.png", "val/cat/1.png", "val/dog/1.png"]
    names += ["val/cat/2.png", "val/cat/2 again.png", "val/dog/2.png", "train/dog/3.png"]
    for name, data in zip(names, [one] * 5 + [two] * 3 + [three], strict=True):
        (root / name).write_bytes(data)
    artifact = check(root)
    assert findings(artifact) == {
        "train/cat/1.png": [("duplicate", "note")],
        "train/dog/1.png": [("conflicting_duplicate", "note")],
        "val/cat/1.png": [("in_both_splits", "error")],
        "val/cat/2.png": [("duplicate", "note")],
        "val/dog/1.png": [("in_both_splits", "error")],
        "val/dog/2.png": [("conflicting_duplicate", "note")],
    }
    details = artifact.table("findings.parquet").set_index("sample_id")["detail"]
    assert details["train/dog/1.png"] == "the same bytes as train/cat/1 again.png, whose kind is cat, not dog"
    assert details["val/cat/1.png"] == "the same bytes as the training image train/cat/1 again.png"
    assert artifact.summary["left_out"] == {"train": 0, "val": 2}
    with pytest.raises(GranularityError, match=r"2 of 13 images cannot be used: in_both_splits: val/cat/1\.png"):
        check(root, "fail")
