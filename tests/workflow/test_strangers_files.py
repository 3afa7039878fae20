"""Files and labels of other people, through the command: what could be taken wrongly without a word."""

import io
import json
import unicodedata
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.store.artifact import Artifact
from support.data_sets import STRUCT, shard

FOLDER = {"source": "folder", "ranks": ["kind"], "target": "kind", "validation": 0.25}


def picture(number: int, size: int = 6) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8))


def encoded(number: int, format: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    picture(number).save(stream, format, **options)
    return stream.getvalue()


def fill(root: Path, *names: str, first: int = 0, format: str = "PNG") -> None:
    for number, name in enumerate(names, first):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(encoded(number, format))


@pytest.fixture
def samples(tmp_path, monkeypatch, capsys):
    """Run `granularity samples` on the folder `root`: samples(...options) gives the artifact and what was said."""
    monkeypatch.chdir(tmp_path)
    Path("root").mkdir()

    def run(**options) -> tuple[Artifact, str]:
        options = FOLDER | {"root": str(tmp_path / "root")} | options
        cli.app(["samples", "--output", "made", "--options", json.dumps(options)], standalone_mode=False)
        return Artifact.open("made", "samples"), " ".join(capsys.readouterr().err.split())

    run.root = tmp_path / "root"
    return run


@pytest.fixture
def refused(samples):
    """The one line of a command that ends without a result: refused(words, ...options)."""

    def run(words: str, **options) -> None:
        with pytest.raises(GranularityError, match=words) as caught:
            samples(**options)
        assert "\n" not in str(caught.value) and not Path("made").exists()

    return run


def findings(made: Artifact) -> dict[str, list[str]]:
    """Finding -> the images that it is of."""
    if "findings.parquet" not in made.manifest["files"]:
        return {}
    table = made.table("findings.parquet")
    return table.groupby("finding", observed=True)["sample_id"].agg(list).to_dict()


def files(made: Artifact) -> list[str]:
    return made.table("samples.parquet")["file"].tolist()


# ---------------------------------------------------------------- files left out


@pytest.mark.parametrize(
    ("ending", "format"),
    [(".avif", "AVIF"), (".jp2", "JPEG2000"), (".jfif", "JPEG"), (".JPE", "JPEG"), ("", "PNG"), (".photo", "JPEG")],
)
def test_what_pillow_decodes_is_read_whatever_it_is_called(samples, ending, format):
    fill(samples.root, *(f"cat/{i}.png" for i in range(3)))
    fill(samples.root, *(f"dog/{i}{ending}" for i in range(3)), first=3, format=format)
    made, _ = samples()
    assert len(made.table("samples.parquet")) == 6 and "other_files" not in made.summary
    images = Images(made)
    for row, file in enumerate(files(made)):
        with Image.open(samples.root / file, formats=["PNG", format]) as plain:
            np.testing.assert_array_equal(np.asarray(images.load(row)), np.asarray(plain))


def test_what_is_left_out_is_counted_by_ending(samples):
    fill(samples.root, *(f"{kind}/{i}.png" for kind in ("cat", "dog") for i in range(4)))
    for name in ("cat/1.heic", "cat/2.heic", "dog/notes.txt", "dog/Makefile", "README.md", ".hidden/x.heic"):
        (samples.root / name).parent.mkdir(exist_ok=True)
        (samples.root / name).write_bytes(b"no image that Pillow reads")
    (samples.root / "emu").mkdir()
    made, said = samples()
    assert made.summary["other_files"] == {"": 1, ".heic": 2, ".md": 1, ".txt": 1}
    assert "left out 1 without an ending, 2 .heic, 1 .md, 1 .txt" in said
    assert made.summary["empty_folders"] == ["emu"] and "1 folders are empty: 'emu'" in said


@pytest.mark.parametrize("lost", ["emu/1.heic", "emu/brown/2.cr2"])
def test_a_class_that_loses_all_its_files_is_an_error(samples, refused, lost):
    fill(samples.root, *(f"{kind}/{i}.png" for kind in ("cat", "dog") for i in range(4)))
    (samples.root / lost).parent.mkdir(parents=True)
    (samples.root / lost).write_bytes(b"no image that Pillow reads")
    refused(rf"root/emu: has no readable image, but 1 {Path(lost).suffix}; convert them to JPEG")


# ---------------------------------------------------------------- labels


def test_one_name_in_two_unicode_forms_is_an_error(samples, refused):
    names = [unicodedata.normalize(form, "pingüino") for form in ("NFC", "NFD")]
    fill(samples.root, *(f"train/{names[0]}/{i}.png" for i in range(3)), f"val/{names[1]}/9.png", "train/cat/1.png")
    refused(
        r"kind: the classes 'pingu\\u0308ino' and 'ping\\xfcino' are the same name in two Unicode forms", validation=1
    )
    rows = [f"train/{names[0]}/{i}.png,{names[i % 2]}" for i in range(3)]
    (samples.root / "l.csv").write_text("\n".join(["path,kind", *rows]) + "\n")
    refused("are the same name in two Unicode forms", source="table", labels="l.csv", validation=1)


def test_names_that_differ_in_case_or_blanks_are_a_finding(samples):
    fill(samples.root, *(f"{kind}/{i}.png" for kind in ("dog", "dog ", " dog", "Dog", "cat") for i in range(4)))
    made, said = samples()
    assert made.table("samples.parquet")["kind"].nunique() == 5
    assert len(findings(made)["similar_names"]) == 3
    assert "note: similar_names: Dog/" in said or "'Dog' (4 images)" in said
    assert "differ only in case or blanks" in said


def test_a_class_without_training_images_is_a_finding_and_with_fail_an_error(samples, refused):
    fill(samples.root, *(f"train/{kind}/{i}.png" for kind in ("cat", "dog") for i in range(3)))
    fill(samples.root, "val/cat/1.png", "val/emu/1.png", "val/emu/2.png", first=9)
    made, said = samples()
    assert findings(made) == {"untrained_class": ["val/emu/1.png", "val/emu/2.png"]} and len(files(made)) == 9
    assert "the kind 'emu' has 2 images in val and none in train" in said
    refused_for = "2 of 9 images cannot be used: untrained_class: val/emu/1.png: the kind 'emu' has 2 images in val"
    with pytest.raises(GranularityError, match=refused_for):
        samples(check_images="fail")
    made, _ = samples(check_images="skip")
    assert made.summary["left_out"] == {"train": 0, "val": 2}


def test_a_finer_class_without_training_images_can_still_be_right(samples):
    fill(samples.root, "train/pet/cat/1.png", "train/wild/emu/1.png", "val/pet/dog/1.png", "val/wild/emu/2.png")
    made, _ = samples(ranks=["kind", "species"], check_images="fail")
    assert findings(made) == {"untrained_subclass": ["val/pet/dog/1.png"]}


def of_table(samples, rows: list[str], header: str = "path,kind") -> dict:
    fill(samples.root, *(row.split(",")[0] for row in rows))
    (samples.root / "l.csv").write_text("\n".join([header, *rows]) + "\n")
    return {"source": "table", "labels": "l.csv"}


def test_several_labels_are_sets_of_synsets_and_an_error_elsewhere(samples, refused):
    pairs = ["n02123045|n02084071", "n02084071|n02123045", "n02084071"] * 3
    table = of_table(samples, [f"{i}.png,{pair}" for i, pair in enumerate(pairs)], "path,synset")
    made, _ = samples(**table, ranks=["synset"], target="synset")
    assert sorted(made.table("samples.parquet")["synset"].unique()) == ["n02084071", "n02084071|n02123045"]
    Path("made").unlink()
    table = of_table(samples, [f"{i}.png,{name}" for i, name in enumerate(["cat|dog", "dog|cat", "cat", "dog"])])
    refused(r"kind: 'cat\|dog' joins labels by \|; only the rank synset .* \(the image '0.png' has it\)", **table)


def captioned(number: int, **more) -> dict[str, bytes | str | dict]:
    """One sample as img2dataset writes it."""
    key = f"{number:09d}"
    about = {"caption": f"photo {number}", "url": f"http://x/{number}.jpg", "status": "success", "width": 6, **more}
    return {f"{key}.jpg": encoded(number, "JPEG"), f"{key}.txt": f"photo {number}", f"{key}.json": about}


def test_a_caption_is_no_label(samples, refused):
    wds = {"source": "webdataset", "ranks": ["label"], "target": "label"}
    members = {}
    for i in range(60):
        members |= captioned(i, label="ab"[i % 2], genus="xyz"[i % 3])
    shard(samples.root / "00000.tar", members)
    made, _ = samples(**wds)
    assert made.table("samples.parquet")["label"].nunique() == 2
    made, _ = samples(**wds | {"ranks": ["genus"], "target": "genus"})
    assert made.table("samples.parquet")["genus"].nunique() == 3
    Path("made").unlink()
    for name in list(members):
        members |= {name: {"width": 6}} if name.endswith("json") else {}
    shard(samples.root / "00000.tar", members)
    refused("label: 60 of 60 images are alone in their class; does the rank contain captions", **wds)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["00000-of-00002"], r"split 'train' lacks file number 1 of 2 \(from 0\)"),
        (["train-00000", "train-00002"], r"split 'train' lacks file number 1 of 2"),
    ],
)
def test_missing_shards_of_archives_are_named(samples, refused, names, words):
    for number, name in enumerate(names):
        shard(samples.root / f"{name}.tar", captioned(number, label="a") | captioned(number + 9, label="b"))
    refused(words, source="webdataset", ranks=["label"], target="label")


# ---------------------------------------------------------------- columns


def parquet(root: Path, **columns) -> dict:
    """Twelve images in `train.parquet`, with further columns."""
    labels = columns.pop("label", pa.array(["a", "b", "c"] * 4))
    pq.write_table(pa.table({"label": labels, **columns}), root / "train.parquet")
    return {"source": "parquet", "ranks": ["label"], "target": "label"}


def images(first: int) -> pa.Array:
    return pa.array([{"bytes": encoded(first + i), "path": None} for i in range(12)], STRUCT)


def test_two_columns_of_images_need_a_name(samples, refused):
    hub = parquet(samples.root, image=images(0), mask=images(50))
    refused(
        r"train.parquet: has several columns of images, \['image', 'mask'\]; name one in samples.image_column", **hub
    )
    refused("samples.image_column: 'label' is not a column of images", **hub, image_column="label")
    made, _ = samples(**hub, image_column="mask")
    row = int(made.table("samples.parquet")["row"].iloc[0])
    np.testing.assert_array_equal(np.asarray(Images(made).load(0)), np.asarray(picture(50 + row)))


def test_plain_bytes_are_images(samples):
    made, _ = samples(**parquet(samples.root, jpg=pa.array([encoded(i) for i in range(12)], pa.binary())))
    row = int(made.table("samples.parquet")["row"].iloc[0])
    np.testing.assert_array_equal(np.asarray(Images(made).load(0)), np.asarray(picture(row)))


def test_paths_without_bytes_are_named(samples, refused):
    elsewhere = pa.array([{"bytes": None, "path": f"photos/{i}.jpg"} for i in range(12)], STRUCT)
    words = r"row \d+ contains no image bytes, but the path 'photos/\d+.jpg'; .* set samples.source to 'table'"
    refused(words, **parquet(samples.root, image=elsewhere))


def test_whole_numbers_that_pandas_made_floats_are_named(samples, refused):
    words = "column 'label' contains floating-point numbers .double., which pandas makes of whole numbers if some are"
    refused(words, **parquet(samples.root, image=images(0), label=pa.array([0.0, 1.0, float("nan")] * 4)))
    frame = pd.DataFrame({"path": [f"{i}.png" for i in range(4)], "kind": [0, 1, None, 1]})
    frame.to_parquet(samples.root / "l.parquet")
    refused(words.replace("label", "kind"), source="table", labels="l.parquet")


def test_metadata_in_the_list_syntax_of_older_versions_is_read(samples):
    features = {
        "label": {"names": ["ash", "oak"], "_type": "ClassLabel"},
        "boxes": [{"dtype": "int64", "_type": "Value"}],
    }
    table = pa.table({"image": images(0), "label": pa.array([0, 1] * 6), "boxes": pa.array([[1]] * 12)})
    metadata = {"huggingface": json.dumps({"info": {"features": features | {"image": {"_type": "Image"}}}})}
    pq.write_table(table.replace_schema_metadata(metadata), samples.root / "train.parquet")
    made, _ = samples(source="parquet", ranks=["label"], target="label")
    assert set(made.table("samples.parquet")["label"]) == {"ash", "oak"}


# ---------------------------------------------------------------- pixels


def chunk(name: bytes, data: bytes, damage: int = 0) -> bytes:
    return len(data).to_bytes(4, "big") + name + data + (zlib.crc32(name + data) ^ damage).to_bytes(4, "big")


def with_chunk(number: int, name: bytes, data: bytes, damage: int = 0) -> bytes:
    png = encoded(number)
    at = png.index(b"IDAT") - 4
    return png[:at] + chunk(name, data, damage) + png[at:]


JUNK = {
    "text.png": with_chunk(0, b"iTXt", b"XML:com.adobe.xmp\0\1\7\0\0\xff"),
    "profile.png": with_chunk(1, b"tEXt", b"Raw profile type exif\0\nexif\nzz\n"),
    "checksum.png": with_chunk(2, b"tIME", b"\7", damage=1),
    "colours.png": with_chunk(3, b"cHRM", b"\0"),
    "exif.png": with_chunk(4, b"eXIf", b"MM\0\x2a\xff\xff\xff"),
    "exif.webp": encoded(5, "WEBP", lossless=True, exif=b"Exif\0\0MMMM junk"),
}


def test_metadata_never_makes_pixels_unreadable(samples):
    for name, data in JUNK.items():
        (samples.root / "cat").mkdir(exist_ok=True)
        (samples.root / "cat" / name).write_bytes(data)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"
    turned = exif.tobytes()
    (samples.root / "cat" / "turned.png").write_bytes(encoded(6, exif=turned[:-3] + b"\xff" * 3))
    fill(samples.root, "dog/1.png", "dog/2.png", first=7)
    made, _ = samples(check_images="fail", validation=2)
    loaded = dict(zip(files(made), map(Images(made).load, range(9)), strict=True))
    for number, name in enumerate(JUNK):
        np.testing.assert_array_equal(np.asarray(loaded[f"cat/{name}"]), np.asarray(picture(number)))
    expected = picture(6).transpose(Image.Transpose.ROTATE_270)
    np.testing.assert_array_equal(np.asarray(loaded["cat/turned.png"]), np.asarray(expected))


def test_the_same_pixels_in_another_file_are_a_copy(samples):
    fill(samples.root, "train/cat/1.png", "train/dog/2.png", "val/dog/3.png", "val/cat/4.png")
    Image.open(samples.root / "train/cat/1.png").save(samples.root / "val/cat/other.bmp")
    picture(1).save(samples.root / "train/cat/again.webp", lossless=True, exact=True)
    made, _ = samples(check_images="skip")
    found = made.table("findings.parquet").set_index("sample_id")
    assert found["finding"].to_dict() == {
        "train/dog/2.png": "conflicting_duplicate",
        "val/cat/other.bmp": "in_both_splits",
    }
    assert found["detail"]["val/cat/other.bmp"] == "the same pixels as the training image train/cat/1.png"


def test_equal_files_are_found_without_decoding(samples):
    fill(samples.root, "train/cat/1.png", "train/dog/2.png", "val/dog/3.png")
    fill(samples.root, "val/cat/1.png")
    fill(samples.root, "train/dog/1 again.png")
    made, said = samples()
    assert findings(made) == {"conflicting_duplicate": ["train/dog/1 again.png"], "in_both_splits": ["val/cat/1.png"]}
    assert "the same bytes as the training image train/cat/1.png" in said and len(files(made)) == 5


# ---------------------------------------------------------------- what a configuration asks of them


def test_more_clusters_or_larger_batches_than_images_end_before_anything_is_embedded(samples, refused):
    fill(samples.root, *(f"{kind}/{i}.png" for kind in ("cat", "dog") for i in range(4)))
    words = "label_spaces: whole-9: 9 is more than the 6 training images; pretrain.batch_size: 100 is more than the 6"
    refused(words, asks={"label_spaces: whole-9": 9, "pretrain.batch_size": 100, "finetune.batch_size": 6})


def test_a_target_of_one_class_is_an_error_and_odd_ranks_are_remarked(samples, refused):
    fill(samples.root, *(f"pet/{kind}/{i}.png" for kind in ("cat", "dog") for i in range(4)))
    refused(
        "samples.target: 'kind' has only one class, 'pet'", ranks=["kind", "species"], asks={"pretrain.batch_size": 2}
    )
    fill(samples.root, "wild/emu/1.png", "wild/yak/1.png", first=20)
    made, said = samples(ranks=["kind", "species"], target="species", validation=4)
    assert "no rank of ['kind', 'species'] is finer than the target 'species'" in said
    assert "samples.ranks: 'species' is finer" not in said and made.summary["remarks"]
