"""ImageNet-21k: folders, archives, several labels, and a validation split that is fixed by a rule.

Layout: winter21_whole.tar.gz of image-net.org, one tar per synset with the JPEG files as its members; unpacked as by
dataset_preprocessing/processing_script.sh of github.com/Alibaba-MIIL/ImageNet21K.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.sources import imagenet21k
from granularity.store.artifacts import Artifact
from support.sampling import make, section

SYNSETS = ["n01440764", "n01443537", "n02084071"]
IMAGES = [f"{synset}/{synset}_{number}" for synset in SYNSETS for number in (10, 2, 33, 4)]


def grey_of(name: str) -> int:
    return sum(map(ord, name)) * 7 % 200


def jpeg(name: str) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (3, 3), grey_of(name)).save(stream, "JPEG")
    return stream.getvalue()


def pack(file: Path, members: dict[str, bytes]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.fixture(params=["folders", "archives"])
def root(request, tmp_path) -> Path:
    root = tmp_path / "imagenet21k"
    for synset in SYNSETS:
        mine = {f"{name.split('/')[1]}.JPEG": jpeg(name) for name in IMAGES if name.startswith(synset)}
        if request.param == "archives":
            pack(root / f"{synset}.tar", mine)
        else:
            (root / synset).mkdir(parents=True)
            for name, data in mine.items():
                (root / synset / name).write_bytes(data)
    (root / "readme.txt").write_text("no image")
    (root / "lists").mkdir()
    return root


def params_of(root: Path, **options):
    options = {"validation": 3} | options
    return section(source="imagenet21k", root=root, ranks=["synset"], target="synset", **options)


def read(root: Path, **options):
    return imagenet21k.read(params_of(root, **options))


def run(root: Path, threads: int = 1, seed: int = 0, **options):
    folder = root.parent / f"samples{seed}"
    make(params_of(root, **options), folder, seed=seed, threads=threads)
    return Artifact.open(folder, "samples")


def test_each_image_is_read_from_its_place(root):
    artifact = run(root, checksums="size")
    table = artifact.table("samples.parquet")
    assert table["sample_id"].tolist() == [name for synset in SYNSETS for name in _order(root, synset)]
    assert [name.split("/")[0] for name in table["sample_id"]] == table["synset"].tolist()
    assert table["synset"].cat.categories.tolist() == SYNSETS
    images = Images(artifact)
    for index, name in enumerate(table["sample_id"]):
        assert abs(images.load(index, "L").getpixel((1, 1)) - grey_of(name)) <= 2
        assert table["bytes"][index] == len(jpeg(name))


def _order(root: Path, synset: str) -> list[str]:
    """In an archive the order of its members, in a folder that of their names."""
    mine = [name for name in IMAGES if name.startswith(synset)]
    return mine if (root / f"{synset}.tar").exists() else sorted(mine, key=lambda name: f"{name}.JPEG")


def test_the_table_does_not_depend_on_threads(root):
    one, two = run(root), run(root, threads=2, seed=1)
    assert one.table("samples.parquet").equals(two.table("samples.parquet"))


# ---------------------------------------------------------------- the validation split


def smallest(names: list[str], count: int) -> set[str]:
    return set(sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:count])


@pytest.mark.parametrize(("validation", "count"), [(5, 5), (0.25, 3), (0.2, 2), (1, 1), (11, 11)])
def test_validation_images_have_the_smallest_hashes(root, validation, count):
    for seed in (0, 1):
        table = run(root, seed=seed, validation=validation).table("samples.parquet")
        held_out = set(table.loc[table["split"] == "val", "sample_id"])
        assert held_out == smallest(IMAGES, count)
        assert len(table) == 12


def test_the_validation_split_has_a_fixed_value(root):
    """Computed with `printf NAME | sha256sum`."""
    held_out = read(root, validation=2).frame.query("split == 'val'")["sample_id"]
    assert set(held_out) == {"n01440764/n01440764_10", "n01443537/n01443537_4"}


def test_equal_beginnings_of_hashes_are_told_apart(monkeypatch, root):
    """All digests begin with the same 8 bytes; what follows decides."""
    monkeypatch.setattr(imagenet21k, "_digest", lambda name: bytes(8) + hashlib.sha256(name.encode()).digest()[:24])
    frame = read(root, validation=5).frame
    assert set(frame.loc[frame["split"] == "val", "sample_id"]) == smallest(IMAGES, 5)


@pytest.mark.parametrize("validation", [12, 1000, 0.01, 0.99])
def test_too_few_images_to_split(root, validation):
    with pytest.raises(GranularityError, match=r"samples\.validation = .*: holds out \d+ of the 12 images"):
        run(root, validation=validation)


def test_a_list_of_validation_images(root):
    (root / "lists" / "val.txt").write_text("n01440764/n01440764_10\nn02084071_4.JPEG\n\n")
    table = run(root, val="lists/val.txt").table("samples.parquet")
    assert set(table.loc[table["split"] == "val", "sample_id"]) == {"n01440764/n01440764_10", "n02084071/n02084071_4"}
    assert (table["split"] == "train").sum() == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "val.txt: lists no images"),
        ("n01440764_10\nn01440764_11\n", "lists 1 images that are not there, such as 'n01440764/n01440764_11'"),
        ("n01440764_10\nn01440764/n01440764_10.JPEG\n", "lists image 'n01440764/n01440764_10' twice"),
        ("\n".join(IMAGES), "there are 12 images|there is no split|name the split to train on"),
        ("\xff\xfe", "val.txt: is no text file"),
    ],
)
def test_a_wrong_list_of_validation_images_is_refused(root, text, message):
    (root / "val.txt").write_text(text, encoding="latin-1")
    with pytest.raises(GranularityError, match=message):
        run(root, val="val.txt")


def test_a_list_that_is_missing_is_refused(root):
    with pytest.raises(GranularityError, match=r"samples\.val: there is no split 'gone\.txt'; .*'train', 'val'"):
        run(root, val="gone.txt")


# ---------------------------------------------------------------- several labels

LABELS = [
    "n01440764/n01440764_10\tn02084071 n01440764",
    "n01440764_2.JPEG,n01440764;n02084071;n01440764",
    "n01443537/n01443537_4.JPEG,n02512053",
    "n02084071/n02084071_33\tn02084071|n01443537|n02512053",
]


@pytest.mark.parametrize("packed", [False, True])
def test_images_with_several_labels(root, packed):
    text = "\n".join(LABELS).encode() + b"\n"
    (root / "labels.txt.gz").write_bytes(gzip.compress(text)) if packed else (root / "labels.txt").write_bytes(text)
    table = run(root, labels="labels.txt.gz" if packed else "labels.txt").table("samples.parquet")
    synset = table.set_index("sample_id")["synset"]
    assert synset["n01440764/n01440764_10"] == synset["n01440764/n01440764_2"] == "n01440764|n02084071"
    assert synset["n01443537/n01443537_4"] == "n02512053"
    assert synset["n02084071/n02084071_33"] == "n01443537|n02084071|n02512053"
    others = synset.drop(["n01440764/n01440764_10", "n01440764/n01440764_2"])
    others = others.drop(["n01443537/n01443537_4", "n02084071/n02084071_33"])
    assert others.tolist() == [name.split("/")[0] for name in others.index]
    classes = synset.cat.categories.tolist()
    assert classes == sorted([*SYNSETS, "n01440764|n02084071", "n02512053", "n01443537|n02084071|n02512053"])


def test_a_class_that_no_image_has_is_none(root):
    lines = [f"{name}\tn02512053" for name in IMAGES if name.startswith("n01443537")]
    (root / "labels.txt").write_text("\n".join(lines))
    assert read(root, labels="labels.txt").frame["synset"].cat.categories.tolist() == [
        "n01440764",
        "n02084071",
        "n02512053",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "labels.txt: lists no images"),
        (LABELS[0] + "\nn01440764_2\n", "line 2: 'n01440764_2' is not an image, a tab or comma, and synsets"),
        ("n01440764_2\tdog\n", r"line 1: 'n01440764_2\\tdog' is not"),
        ("n01440764_2\tn1440764\n", "line 1: .* is not an image"),
        ("n01440764_2\tn014407641\n", "line 1: .* is not an image"),
        ("n01440764_2\t;\n", "line 1: .* is not an image"),
        ("n01440764_3\tn01440764\n", "lists 1 images that are not there, such as 'n01440764/n01440764_3'"),
        (f"{LABELS[0]}\n{LABELS[2]}\n{LABELS[0]}", "lists image 'n01440764/n01440764_10' twice"),
        ("\xff", "is no text file"),
    ],
)
def test_wrong_labels_are_refused(root, text, message):
    (root / "labels.txt").write_text(text, encoding="latin-1")
    with pytest.raises(GranularityError, match=message) as caught:
        run(root, labels="labels.txt")
    assert "\n" not in str(caught.value)
    assert not (root.parent / "samples0").exists()


def test_labels_that_are_missing_or_cut_off_are_refused(root):
    with pytest.raises(GranularityError, match=r"labels\.txt: cannot be read"):
        run(root, labels="labels.txt")
    whole = gzip.compress("\n".join(LABELS).encode())
    for keep in (5, 20, len(whole) - 4):
        (root / "labels.txt.gz").write_bytes(whole[:keep])
        with pytest.raises(GranularityError, match=r"labels\.txt\.gz: cannot be read"):
            read(root, labels="labels.txt.gz")
    (root / "labels.txt.gz").write_bytes(whole[:12] + b"\xff\xff\xff" + whole[15:])
    with pytest.raises(GranularityError, match=r"labels\.txt\.gz: (cannot be read|is no text)"):
        read(root, labels="labels.txt.gz")


# ---------------------------------------------------------------- odd folders and archives


def test_folders_beside_archives_are_refused(root):
    pack(root / "n09999998.tar", {"n09999998_1.JPEG": jpeg("a")})
    (root / "n09999999").mkdir()
    with pytest.raises(GranularityError, match=r"holds both folders and archives, such as n0.* and n0.*\.tar"):
        run(root)


@pytest.mark.parametrize("name", ["n0144076", "n01440764.tar.gz", "n014407640"])
def test_what_is_nearly_a_synset_is_refused(root, name):
    (root / name).mkdir()
    with pytest.raises(GranularityError, match=rf"{name}: is neither the folder nor the plain tar of a synset"):
        run(root)


def test_nothing_there_is_refused(tmp_path):
    with pytest.raises(GranularityError, match="cannot be read"):
        run(tmp_path / "nowhere")
    empty = tmp_path / "root" / "n01440764"
    empty.mkdir(parents=True)
    with pytest.raises(GranularityError, match="root: holds no images of the layout of"):
        run(tmp_path / "root")
    empty.rmdir()
    with pytest.raises(GranularityError, match="root: holds no images of the layout of"):
        run(tmp_path / "root")


def test_a_synset_without_images_is_noted(root):
    if (root / "n01440764.tar").exists():
        pack(root / "n02512053.tar", {"notes.txt": b"none"})
    else:
        (root / "n02512053").mkdir()
        (root / "n02512053" / "notes.txt").write_text("none")
    artifact = run(root)
    assert artifact.summary["synsets_without_images"] == 1
    assert artifact.summary["classes"] == {"synset": 3}
    assert len(artifact.table("samples.parquet")) == 12


@pytest.mark.parametrize("root", ["archives"], indirect=True)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_broken_archive_is_named(root, threads):
    file = root / "n01443537.tar"
    whole = file.read_bytes()
    for data in (b"", whole[:700], whole[:1024], gzip.compress(whole)):
        file.write_bytes(data)
        with pytest.raises(
            GranularityError, match=r"n01443537\.tar: (is )?truncated|n01443537\.tar: is .* no plain tar"
        ):
            imagenet21k.read(params_of(root), threads)
    file.unlink()
    file.symlink_to("nowhere.tar")
    with pytest.raises(GranularityError, match=r"n01443537\.tar: cannot be read"):
        imagenet21k.read(params_of(root), threads)


@pytest.mark.parametrize("root", ["archives"], indirect=True)
def test_members_that_leave_the_archive_or_are_twice_there_are_refused(root):
    pack(root / "n02512053.tar", {"../n02512053_1.JPEG": jpeg("a")})
    with pytest.raises(GranularityError, match=r"n02512053\.tar: the member '\.\./n02512053_1\.JPEG' has a path"):
        run(root)
    pack(root / "n02512053.tar", {"n02512053_1.JPEG": jpeg("a"), "n02512053_1.jpg": jpeg("b")})
    with pytest.raises(GranularityError, match="two images have the sample_id 'n02512053/n02512053_1'"):
        run(root)


@pytest.mark.parametrize("root", ["archives"], indirect=True)
def test_members_in_a_folder_of_the_archive(root):
    pack(root / "n02512053.tar", {f"./n02512053/n02512053_{i}.JPEG": jpeg(str(i)) for i in range(2)})
    frame = read(root).frame
    assert frame["sample_id"].tolist()[-2:] == ["n02512053/n02512053_0", "n02512053/n02512053_1"]


@pytest.mark.parametrize("root", ["folders"], indirect=True)
def test_a_name_that_is_not_utf8_is_refused(root):
    try:
        (root / "n01443537" / "a.JPEG").write_bytes(jpeg("a"))
        os.rename(root / "n01443537" / "a.JPEG", os.fsencode(root / "n01443537") + b"/\xff.JPEG")
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    with pytest.raises(GranularityError, match=r"udcff\.JPEG': its name is not UTF-8"):
        run(root)


@pytest.mark.parametrize("root", ["archives"], indirect=True)
def test_a_member_whose_name_is_not_utf8_is_refused(root):
    pack(root / "n02512053.tar", {"n02512053_1.JPEG": jpeg("a")})
    data = (root / "n02512053.tar").read_bytes().replace(b"n02512053_1.JPEG", b"n02512053_\xff.JPEG")
    header = bytearray(data[:512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (root / "n02512053.tar").write_bytes(bytes(header) + data[512:])
    with pytest.raises(GranularityError, match=r"n02512053\.tar: .* is not UTF-8"):
        run(root)
