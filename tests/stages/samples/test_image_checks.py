"""Looking at every image before it is used: what is an error, what a note, and what happens then."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageFile
from typer.testing import CliRunner

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.data.decoding import ImageError, decode
from granularity.data.images import Images, Reader
from granularity.stages.samples import checks
from granularity.stages.samples import look as looking
from granularity.stages.samples.look import LARGEST, look
from granularity.stages.samples.source import Source
from granularity.stages.samples.sources import folder
from granularity.store.artifacts import Artifact
from support.sampling import make, section

DATA = os.environ.get("GRANULARITY_DATA")
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
    for i, name in enumerate(["train/cat/good.png", "train/dog/good.png", "val/cat/good.png", "val/dog/good.png"]):
        (tmp_path / "root" / name).parent.mkdir(parents=True)
        (tmp_path / "root" / name).write_bytes(encoded(noise(1000 + i)))
    return tmp_path / "root"


def check(root: Path, policy: str = "skip", threads: int = 1, output: str = "samples", show=False, **over) -> Artifact:
    params = section(source="folder", root=root, ranks=["kind"], target="kind", check_images=policy, **over)
    make(params, root.parent / output, threads=threads, show=show)
    return Artifact.open(root.parent / output, "samples")


def findings(artifact: Artifact) -> dict[str, list[tuple[str, str]]]:
    """By image: the names of its findings, and their severity."""
    table = artifact.table("findings.parquet")
    assert table.columns.tolist() == ["sample_id", "file", "finding", "severity", "detail"]
    return {
        name: list(zip(part["finding"], part["severity"], strict=True))
        for name, part in table.groupby("sample_id", sort=False)
    }


def details(artifact: Artifact) -> dict[str, str]:
    return artifact.table("findings.parquet").set_index("sample_id")["detail"].to_dict()


def ids(artifact: Artifact) -> list[str]:
    return artifact.table("samples.parquet", ["sample_id"])["sample_id"].tolist()


# ---------------------------------------------------------------- errors


def cut(data: bytes, share: float = 0.5) -> bytes:
    return data[: int(share * len(data))]


BROKEN = {
    "empty.jpg": (b"", "empty"),
    "text.jpg": (b"<html>404 Not Found</html>", "corrupt"),
    "zeros.png": (bytes(5000), "corrupt"),
    "magic alone.jpg": (b"\xff\xd8\xff", "corrupt"),
    "eps.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n", "corrupt"),
    "no magic number.bmp": (encoded(noise(), "TGA"), "corrupt"),
    "cut.png": (cut(encoded(noise())), "truncated"),
    "cut.jpg": (cut(encoded(noise(size=(200, 100)), "JPEG")), "truncated"),
    "cut in its header.jpg": (cut(encoded(noise(), "JPEG"), 0.1), "truncated"),
    "almost whole.jpg": (encoded(noise(1), "JPEG")[:-40], "truncated"),
    "progressive.jpg": (cut(encoded(noise(size=(200, 100)), "JPEG", progressive=True), 0.8), "truncated"),
    "cut.gif": (cut(encoded(noise(mode="P"), "GIF")), "truncated"),
    "cut.bmp": (cut(encoded(noise(), "BMP")), "truncated"),
    "cut.tif": (cut(encoded(noise(), "TIFF")), "truncated"),
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
    assert not re.search(r"0x[0-9a-f]+", " ".join(details(artifact).values())), "an address is not the same twice"


def test_the_summary_counts_what_was_left_out(broken):
    summary = check(broken, output="counted").summary
    assert summary["findings"] == {"empty": 1, "truncated": 9, "corrupt": 7, "bomb": 5}
    assert summary["left_out"] == {"train": len(BROKEN), "val": 0}
    assert summary["images"] == {"train": 1, "val": 1}


def test_failing_names_all_in_the_log_and_three_in_the_error(broken, capsys):
    with pytest.raises(GranularityError) as error:
        check(broken, "fail", output="failed")
    text = str(error.value)
    assert text.startswith("samples.check_images: 22 of 24 images cannot be used: truncated: train/cat/almost ")
    assert text.count("train/cat/") == 3 and "\n" not in text
    assert "train/cat/bits.png" in text and "train/cat/bomb.png" in text
    log = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in log if line.startswith("error: ")] == sorted(
        f"train/cat/{x}" for x in BROKEN
    )
    assert not list(broken.parent.glob("*failed*"))


def test_an_error_of_the_check_is_an_error_of_decoding_and_no_other(broken):
    reader = Reader(broken)
    for file in sorted(broken.rglob("*.*")):
        found = look(reader, str(file.relative_to(broken)), None, None, None).findings
        try:
            decode(file.read_bytes())
            assert found == []
        except ImageError as error:
            assert [name for name, _ in found] == [error.finding]


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


def test_the_stage_that_decodes_refuses_bombs_too(root):
    (root / "train/cat/half.png").write_bytes(png(size=(9_500, 9_500)))
    images = Images(check(root, "no"))
    with pytest.raises(GranularityError, match=r"half\.png: cannot be decoded .*9500 x 9500 pixels"):
        images.load(1)


def test_half_an_image_stays_an_error_though_a_library_may_want_it(broken, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert look(Reader(broken), "train/cat/cut.jpg", None, None, None).findings[0][0] == "truncated"


def test_pillow_warns_nobody(root):
    (root / "train/cat/half.png").write_bytes(png(size=(9_500, 9_500)))
    odd = encoded(noise(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01\x03\0\x09")
    (root / "train/cat/exif.jpg").write_bytes(odd)
    with pytest.warns(UserWarning, match="EXIF"):
        Image.open(io.BytesIO(odd)).getexif()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        artifact = check(root)
    assert [str(warning.message) for warning in caught] == []
    assert findings(artifact) == {"train/cat/half.png": [("bomb", "error")]}


def test_what_is_not_there_or_no_file(root):
    (root / "train/cat/gone.png").symlink_to(root / "nowhere")
    (root / "train/cat/loop.png").symlink_to(root / "train/cat/loop.png")
    os.mkfifo(root / "train/cat/pipe.png")  # reading it would wait for ever
    artifact = check(root)
    assert findings(artifact) == {
        "train/cat/gone.png": [("missing", "error")],
        "train/cat/loop.png": [("unreadable", "error")],
        "train/cat/pipe.png": [("unreadable", "error")],
    }


def test_too_many_bytes_are_not_read(root):
    with (root / "train/cat/huge.png").open("wb") as stream:
        stream.truncate(LARGEST + 1)  # a hole: it takes no space
    artifact = check(root, checksums="size")
    assert findings(artifact) == {"train/cat/huge.png": [("bomb", "error")]}


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_split_must_not_become_empty(root, policy):
    for file in root.glob("val/*/*.png"):
        file.write_bytes(b"")
    message = "2 of 4 images cannot be used" if policy == "fail" else "no image of the split 'val' can be used"
    with pytest.raises(GranularityError, match=message):
        check(root, policy)
    assert not (root.parent / "samples").exists()


def test_where_a_skipped_image_was_the_next_is_right(root):
    (root / "train/cat/a.png").write_bytes(b"")
    (root / "train/cat/z.png").write_bytes(encoded(noise(5)))
    images = Images(check(root))
    assert images.table["sample_id"].tolist()[:2] == ["train/cat/good.png", "train/cat/z.png"]
    np.testing.assert_array_equal(np.asarray(images.load(1)), np.asarray(noise(5)))


# ---------------------------------------------------------------- notes


def saved(image: Image.Image, format: str = "PNG", **options):
    return lambda file: image.save(file, format, **options)


def clear(image: Image.Image) -> Image.Image:
    image.putalpha(99)
    return image


FRAMES = {"save_all": True, "append_images": [noise(8), noise(9)]}
ODD = {
    "cmyk.jpg": (saved(noise(20, mode="CMYK"), "JPEG"), ["cmyk"]),
    "palette.png": (saved(noise(21, mode="P")), ["palette"]),
    "palette.gif": (saved(noise(22, mode="P"), "GIF"), ["palette"]),
    "grey16.png": (saved(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50)), ["sixteen_bit"]),
    "grey16.tif": (saved(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40)), "TIFF"), ["sixteen_bit"]),
    "alpha.png": (saved(noise(24, mode="RGBA")), ["alpha"]),
    "grey alpha.png": (saved(noise(25, mode="LA")), ["alpha"]),
    "one colour clear.png": (saved(noise(26), transparency=(1, 2, 3)), ["alpha"]),
    "palette clear.png": (saved(noise(27, mode="P"), transparency=0), ["palette", "alpha"]),
    "alpha.webp": (saved(clear(noise(28)), "WEBP"), ["alpha"]),
    "film.gif": (saved(noise(29, mode="P"), "GIF", **FRAMES), ["palette", "animated"]),
    "film.png": (saved(noise(30), **FRAMES), ["animated"]),
    "film.webp": (saved(noise(31), "WEBP", **FRAMES), ["animated"]),
    "pages.tif": (saved(noise(32), "TIFF", **FRAMES), ["animated"]),
    "two lenses.jpg": (saved(noise(33), "MPO", **FRAMES), ["animated"]),
    "turned.jpg": (saved(noise(34), "JPEG", exif=ROTATED), ["rotated"]),
    "turned.png": (saved(noise(35), exif=ROTATED), ["rotated"]),
    "großer Bär.png": (saved(noise(36)), ["not_ascii"]),
    "grey.png": (saved(noise(37, mode="L")), []),
    "bilevel.png": (saved(noise(38, mode="1")), []),
    "upright.jpg": (saved(noise(39), "JPEG", exif=Image.Exif()), []),
}


def test_every_note_has_its_name_and_leaves_nothing_out(root):
    for name, (save, _) in ODD.items():
        save(root / "train/dog" / name)
    artifact = check(root, "fail")
    assert findings(artifact) == {
        f"train/dog/{name}": [(note, "note") for note in notes] for name, (_, notes) in sorted(ODD.items()) if notes
    }
    assert len(ids(artifact)) == 4 + len(ODD)
    assert artifact.summary["left_out"] == {"train": 0, "val": 0}
    assert artifact.summary["findings"]["animated"] == 5
    images = Images(artifact)
    for i in range(len(images)):
        images.load(i)


def test_sixteen_bits_of_each_colour(root):
    """Pillow reads such PNG files and keeps the upper half; it cannot write them."""
    rows = np.random.default_rng(0).integers(0, 65536, (2, 2 * 3)).astype(">u2")
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0)
    file = png().replace(b"IDAT", b"IDAT")[:8]
    for name, part in [(b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b"")]:
        file += struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
    (root / "train/cat/deep.png").write_bytes(file)
    artifact = check(root)
    assert findings(artifact) == {"train/cat/deep.png": [("sixteen_bit", "note")]}
    assert Images(artifact).load(0).getpixel((0, 0)) == tuple(int(value) // 256 for value in rows[0, :3])


def test_details_say_what_happens_to_it(root):
    saved(noise(1), "JPEG", exif=ROTATED)(root / "train/cat/a.jpg")
    saved(noise(2, mode="P"), "GIF", **FRAMES)(root / "train/cat/b.gif")
    assert details(check(root)) == {
        "train/cat/a.jpg": "EXIF orientation 6: it is turned upright",
        "train/cat/b.gif": "the first of its frames is used",
    }


# ---------------------------------------------------------------- equal bytes


def test_equal_bytes_within_and_across_splits(root):
    one, two, three = (encoded(noise(seed)) for seed in (1, 2, 3))
    for name, data in [
        ("train/cat/1.png", one),
        ("train/cat/1 again.png", one),
        ("train/dog/1.png", one),
        ("val/cat/1.png", one),
        ("val/dog/1.png", one),
        ("val/cat/2.png", two),
        ("val/cat/2 again.png", two),
        ("val/dog/2.png", two),
        ("train/dog/3.png", three),
    ]:
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
    assert details(artifact) == {
        "train/cat/1.png": "the same bytes as train/cat/1 again.png, of the same kind",
        "train/dog/1.png": "the same bytes as train/cat/1 again.png, whose kind is cat, not dog",
        "val/cat/1.png": "the same bytes as the training image train/cat/1 again.png",
        "val/cat/2.png": "the same bytes as val/cat/2 again.png, of the same kind",
        "val/dog/1.png": "the same bytes as the training image train/cat/1 again.png",
        "val/dog/2.png": "the same bytes as val/cat/2 again.png, whose kind is cat, not dog",
    }
    assert artifact.summary["left_out"] == {"train": 0, "val": 2}
    with pytest.raises(GranularityError, match=r"2 of 13 images cannot be used: in_both_splits: val/cat/1\.png"):
        check(root, "fail")


def test_equal_bytes_without_checksums(root):
    (root / "val/cat/copy.png").write_bytes((root / "train/cat/good.png").read_bytes())
    artifact = check(root, checksums="size")
    assert findings(artifact) == {"val/cat/copy.png": [("in_both_splits", "error")]}
    table = artifact.table("samples.parquet")
    assert table["sha256"].isna().all()
    assert table["bytes"].tolist() == [(root / name).stat().st_size for name in table["file"]]


def test_hashes_that_only_begin_alike_are_not_equal(root, monkeypatch):
    class Hash:
        def __init__(self, data: bytes):
            self.data = data

        def digest(self) -> bytes:
            return bytes(8) + zlib.crc32(self.data).to_bytes(24, "big")

    monkeypatch.setattr(looking.hashlib, "sha256", Hash)
    (root / "val/cat/copy.png").write_bytes((root / "train/cat/good.png").read_bytes())
    frame = frame_of([{"file": str(file.relative_to(root))} for file in sorted(root.rglob("*.png"))])
    assert checked(frame, root)[1] == [("image 2", "duplicate")]


def test_broken_images_are_nobodys_duplicates(root):
    for name in ("train/cat/a.png", "train/cat/b.png", "val/cat/a.png"):
        (root / name).write_bytes(b"the same rubbish")
    assert {one for found in findings(check(root)).values() for one in found} == {("corrupt", "error")}


def test_images_that_are_not_used_are_not_looked_at(root):
    (root / "val/cat/copy.png").write_bytes((root / "train/cat/good.png").read_bytes())
    params = section(source="folder", root=root, ranks=["kind"], target="kind", check_images="fail")
    used = {}
    for seed in range(8):
        try:
            make(params, root.parent / str(seed), train_size=1, seed=seed)
            used[seed] = ids(Artifact.open(root.parent / str(seed)))[0]
        except GranularityError as error:
            assert "val/cat/copy.png" in str(error)
            used[seed] = "train/cat/good.png"
    assert set(used.values()) == {"train/cat/good.png", "train/dog/good.png"}


# ---------------------------------------------------------------- places other than files


def frame_of(places: list[dict], split: list[str] | None = None, kind: list[str] | None = None) -> pd.DataFrame:
    """As the stage hands it over."""
    frame = pd.DataFrame(places, columns=["file", "row", "offset", "bytes"])
    frame = frame.astype({"file": "str", "row": "Int64", "offset": "Int64", "bytes": "Int64"})
    frame.insert(0, "sample_id", [f"image {i}" for i in range(len(frame))])
    split = split or ["train"] * len(frame)
    frame["split"] = pd.Categorical(split, ["train", "val", "shifted"])
    return frame.assign(kind=pd.Categorical(kind or ["cat"] * len(frame)))


def checked(frame: pd.DataFrame, folder: Path, policy: str = "skip"):
    params = section(source="folder", root=folder, ranks=["kind"], target="kind", check_images=policy)
    kept, found = checks.run(frame, params, Reader(folder))
    return kept, list(zip(found["sample_id"], found["finding"], strict=True))


def test_images_in_archives(tmp_path):
    parts = [encoded(noise(i)) for i in range(2)]
    (tmp_path / "a.bin").write_bytes(b"head" + b"".join(parts))
    places = [{"file": "a.bin", "offset": 4, "bytes": len(parts[0])}]
    places += [{"file": "a.bin", "offset": 4 + len(parts[0]), "bytes": len(parts[1])}]
    places += [{"file": "a.bin", "offset": 5, "bytes": 100}, {"file": "a.bin", "offset": 4, "bytes": 50}]
    places += [{"file": "a.bin", "offset": 4, "bytes": 0}, {"file": "a.bin", "offset": 4, "bytes": 10 * 2**40}]
    places += [{"file": "gone.bin", "offset": 4, "bytes": 9}]
    kept, found = checked(frame_of(places), tmp_path)
    assert found == [
        ("image 2", "corrupt"),
        ("image 3", "truncated"),
        ("image 4", "empty"),
        ("image 5", "unreadable"),
        ("image 6", "missing"),
    ]
    assert kept["bytes"].tolist() == [len(part) for part in parts]


def test_images_in_parquet_files(tmp_path):
    values = [{"bytes": encoded(noise(1)), "path": "a"}, {"bytes": None, "path": "b"}, {"bytes": b"", "path": "c"}]
    values += [{"bytes": cut(encoded(noise(2))), "path": "d"}]
    struct_type = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    pq.write_table(pa.table({"img": pa.array(values, struct_type)}), tmp_path / "a.parquet", row_group_size=2)
    (tmp_path / "b.parquet").write_bytes(b"no Parquet")
    places = [{"file": "a.parquet", "row": i} for i in range(5)] + [{"file": "b.parquet", "row": 0}]
    _, found = checked(frame_of(places), tmp_path)
    assert found == [
        ("image 1", "unreadable"),
        ("image 2", "empty"),
        ("image 3", "truncated"),
        ("image 4", "unreadable"),
        ("image 5", "unreadable"),
    ]


def test_a_copy_in_an_extra_split_is_an_error_and_one_of_val_is_not(tmp_path):
    for name, seed in [("a", 1), ("b", 1), ("c", 2), ("d", 2)]:
        noise(seed).save(tmp_path / f"{name}.png")
    frame = frame_of([{"file": f"{name}.png"} for name in "abcd"], ["train", "shifted", "val", "shifted"])
    with pytest.raises(GranularityError, match="no image of the split 'shifted'"):
        checked(frame[:3].copy(), tmp_path)
    kept, found = checked(frame, tmp_path)
    assert found == [("image 1", "in_both_splits")]
    assert kept["split"].tolist() == ["train", "val", "shifted"]


# ---------------------------------------------------------------- the command, the log, threads


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_and_chunks_change_nothing(broken, monkeypatch, threads):
    one = check(broken, output="one")
    monkeypatch.setattr(checks, "CHUNK", 7)
    monkeypatch.setattr(checks, "BATCH", 2)
    assert check(broken, threads=threads, output=f"with {threads}").digest == one.digest


@pytest.mark.parametrize("checksums", ["content", "size"])
def test_the_table_is_the_one_without_a_check(root, checksums):
    plain = check(root, "no", output="plain", checksums=checksums)
    looked = check(root, "fail", checksums=checksums)
    assert "findings.parquet" not in plain.manifest["files"]
    assert not {"findings", "left_out"} & set(plain.summary)
    assert looked.table("findings.parquet").empty and findings(looked) == {}
    assert looked.summary["findings"] == {}
    for name in ("samples.parquet", "taxonomy.parquet"):
        assert looked.manifest["files"][name]["sha256"] == plain.manifest["files"][name]["sha256"]


@pytest.fixture
def command(root):
    def run(policy: str, show: bool = False):
        params = section(source="folder", root=root, ranks=["kind"], target="kind", check_images=policy)
        options = json.dumps({**params.model_dump(mode="json"), "show": show})
        return CliRunner().invoke(cli.app, ["samples", "--options", options, "-o", str(root.parent / "samples")])

    return run


def test_the_command_tells_what_is_odd(command, root):
    noise(1, mode="CMYK").save(root / "train/cat/odd.jpg")
    assert command("no").exit_code == 0
    assert not (root.parent / "samples" / "findings.parquet").exists()
    result = command("no", show=True)
    assert result.exit_code == 0
    log = result.stderr.splitlines()
    assert "note: cmyk: train/cat/odd.jpg: converted by formula, without its colour profile" in log
    assert "checked 5 images: 1 cmyk" in log
    artifact = Artifact.open(root.parent / "samples")
    assert artifact.params["check_images"] == "fail"
    assert findings(artifact) == {"train/cat/odd.jpg": [("cmyk", "note")]}


def test_the_command_fails_on_errors_unless_they_are_to_be_skipped(command, root):
    (root / "train/cat/odd.jpg").write_bytes(b"")
    result = command("no", show=True)
    assert isinstance(result.exception, GranularityError)
    assert not (root.parent / "samples").exists()
    result = command("skip", show=True)
    assert result.exit_code == 0
    assert "error: empty: train/cat/odd.jpg: there are no bytes in it" in result.stderr.splitlines()
    assert "left out 1 of 5 images" in result.stderr.splitlines()
    assert Artifact.open(root.parent / "samples").params["check_images"] == "skip"


def test_a_name_cannot_add_a_line_to_the_log(root, capsys):
    name = "a\nerror: \x1b[2J\u202e.png"
    (root / "train/cat" / name).write_bytes(b"")
    with pytest.raises(GranularityError) as error:
        check(root, "fail")
    for text in (str(error.value), capsys.readouterr().err):
        assert r"train/cat/a\nerror: \x1b[2J\u202e.png: there are no bytes in it" in text
    assert "\n" not in str(error.value)
    artifact = check(root)
    assert findings(artifact) == {f"train/cat/{name}": [("empty", "error"), ("not_ascii", "note")]}


@pytest.mark.parametrize("dtype", [object, "category", None])
@pytest.mark.parametrize("column", ["sample_id", "file", "kind"])
def test_a_name_that_no_file_can_hold_is_refused(root, monkeypatch, column, dtype):
    """Whatever the source, and whatever it makes its columns of."""

    def read(params, threads):
        columns = {name: ["train/cat/good.png", "val/cat/good.png"] for name in ("sample_id", "file", "kind")}
        columns[column][1] = "a\ud800\n.png"
        return Source(pd.DataFrame({name: pd.Series(values, dtype=dtype) for name, values in columns.items()}))

    monkeypatch.setattr(folder, "read", read)
    for policy in ("no", "fail"):
        with pytest.raises(GranularityError, match=r"root: the name 'a\\ud800\\n\.png' is not UTF-8; rename it"):
            check(root, policy)
    assert not (root.parent / "samples").exists()


def test_the_digits_have_nothing_wrong(tmp_path):
    make(section(validation=60, check_images="fail"), tmp_path / "samples", train_size=120)
    assert Artifact.open(tmp_path / "samples").summary["findings"] == {}


# ---------------------------------------------------------------- any bytes at all


FORMATS = [
    ("PNG", "RGB"),
    ("PNG", "P"),
    ("JPEG", "RGB"),
    ("JPEG", "CMYK"),
    ("GIF", "P"),
    ("BMP", "RGB"),
    ("TIFF", "RGB"),
]
FORMATS += [("WEBP", "RGB"), ("AVIF", "RGB"), ("JPEG2000", "RGB"), ("PPM", "RGB")]


@pytest.mark.parametrize(("format", "mode"), FORMATS)
def test_broken_bytes_give_findings_and_nothing_else(tmp_path, format, mode):
    rng = np.random.default_rng(0)
    options = {"exif": ROTATED} if format in ("PNG", "JPEG", "TIFF", "WEBP") else {}
    whole = encoded(noise(mode=mode, size=(9, 7)), format, **options)
    reader = Reader(tmp_path)
    for i in range(60):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 4):
            data[place] = rng.integers(256)
        data = bytes(data[: rng.integers(1, len(data) + 1)] if i % 2 else data)
        (tmp_path / "a").write_bytes(data)
        found = look(reader, "a", None, None, None).findings
        errors = [name for name, _ in found if name in checks.ERRORS]
        assert {name for name, _ in found} <= set(checks.FINDINGS)
        assert len(errors) <= 1 and all("\n" not in detail for _, detail in found)
        try:
            decode(data)
            assert errors == [] or format == "PNG"  # whose checksums tell more than decoding does
        except ImageError as error:
            assert errors == [error.finding]


@pytest.mark.parametrize("place", [-5, -14, -40, -200])  # in the checksum of IEND and of IDAT, and in IDAT
def test_a_png_whose_checksums_do_not_hold_is_corrupt(tmp_path, place):
    data = bytearray(encoded(noise(size=(64, 64))))
    data[place] ^= 1
    (tmp_path / "a").write_bytes(data)
    assert [name for name, _ in look(Reader(tmp_path), "a", None, None, None).findings] == ["corrupt"]


# ---------------------------------------------------------------- photographs


@pytest.mark.skipif(DATA is None, reason="needs real images: set GRANULARITY_DATA (see docs/development.md)")
def test_photographs_and_what_becomes_of_them(tmp_path):
    """CIFAR-10's first 60 test images, of which some are damaged as downloads and discs damage files."""
    table = next(pq.ParquetFile(Path(DATA) / "cifar10/test.parquet").iter_batches(60, columns=["img"]))
    photos = [value.as_py() for value in table.column("img").field("bytes")]
    expected = {}
    for i, photo in enumerate(photos):
        name, data, finding = f"{i:02d}.png", photo, None
        if i % 6 == 1:
            data, finding = cut(photo, 0.2 + i / 100), "truncated"
        elif i % 6 == 2:
            middle = bytearray(encoded(Image.open(io.BytesIO(photo))))
            middle[1000:1064] = bytes(64)  # a JPEG file, as these are, has nothing that would tell
            data, finding = bytes(middle), "corrupt"
        elif i == 3:
            data, finding = b"", "empty"
        elif i % 6 == 4:
            image = Image.open(io.BytesIO(photo))
            name, data, finding = f"{i:02d}.jpg", encoded(image.resize((64, 64)), "JPEG")[:-99], "truncated"
        part = "val" if i % 6 == 0 else "train"
        file = tmp_path / "root" / part / "thing" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        if finding is not None:
            expected[f"{part}/thing/{name}"] = [(finding, "error")]
    (tmp_path / "root/val/thing/copy.png").write_bytes(photos[5])
    expected["val/thing/copy.png"] = [("in_both_splits", "error")]
    artifact = check(tmp_path / "root", threads=2)
    assert findings(artifact) == expected
    assert len(ids(artifact)) == 61 - len(expected)
