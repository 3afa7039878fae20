"""WebDataset: samples in tar archives.

Layout: https://github.com/webdataset/webdataset, src/webdataset/tariterators.py; names of shards as in
https://huggingface.co/datasets/timm/imagenet-1k-wds (imagenet1k-train-0000.tar).
"""

import gzip
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.sources import webdataset
from granularity.store.artifact import Artifact
from support.data_sets import grey, pairs, shard
from support.sampling import make, section


def params(root: Path, **over):
    over = {"ranks": ["label"], "target": over.get("ranks", ["label"])[0], **over}
    return section(source="webdataset", root=root, **over)


def run(root: Path, threads: int = 1, **over) -> Artifact:
    folder = root.parent / "samples"
    make(params(root, **over), folder, threads=threads)
    return Artifact.open(folder, "samples")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize("threads", [1, 2])
def test_shards_go_through_the_stage(root, threads):
    shard(root / "imagenet1k-train-0001.tar", pairs([10, 0], first=30))
    shard(root / "imagenet1k-train-0000.tar", pairs([9, 10, 0], first=20))
    shard(root / "imagenet1k-validation-00.tar", pairs([9], first=90))
    artifact = run(root, threads)
    frame = artifact.table("samples.parquet")
    train = [f"train-{place}" for place in ("0000/a0", "0000/a1", "0000/a2", "0001/a0", "0001/a1")]
    assert frame["sample_id"].tolist() == [f"imagenet1k-{place}" for place in (*train, "validation-00/a0")]
    assert frame["split"].tolist() == ["train"] * 5 + ["val"]
    assert frame["label"].tolist() == ["9", "10", "0", "10", "0", "9"]
    assert list(frame["label"].cat.categories) == ["0", "9", "10"]
    images = Images(artifact)
    assert [images.load(i, "L").getpixel((0, 0)) for i in range(6)] == [20, 21, 22, 30, 31, 90]


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train-000000.tar", "val-000000.tar"], ["train", "val"]),
        (["train/000000.tar", "val/000000.tar"], ["train", "val"]),
        (["train/part-0.tar", "test/part-0.tar"], ["test", "train"]),
        (["train.tar", "test.tar"], ["test", "train"]),
        (["my_train_07.tar", "my_dev_07.tar"], ["dev", "train"]),
        (["data/train-0000.tar", "data/val-0000.tar"], ["train", "val"]),
        (["train-00000-of-00002.tar", "train-00001-of-00002.tar"], ["train", "train"]),
    ],
)
def test_names_of_splits(root, names, splits):
    for name in names:
        shard(root / name, pairs(["x"]))
    val = next((name for name in splits if name != "train"), None)
    found = webdataset.read(params(root, val=val))
    assert found.frame["split"].tolist() == splits
    assert found.frame["sample_id"].tolist() == sorted(name.removesuffix(".tar") + "/a0" for name in names)


def test_odd_members_are_what_the_library_makes_of_them(root):
    """Capitals, folders and dots in them, hidden and meta files, other files of a sample, JPEG, a leading ./"""
    members = {
        "__meta__/index.json": b"\0",
        "./x.y/b.JPG": grey(1, "JPEG"),
        "./x.y/b.Cls": " 7\n",
        "./x.y/b.seg.png": grey(9),
        "./x.y/b.pyd": b"cos\nsystem\n(S'false'\ntR.",
        "._hidden.png": b"\0",
        "README": b"no extension",
        "x.y/c.d.webp.txt": b"no image of its own",
    }
    shard(root / "train-0.tar", members)
    with pytest.raises(
        GranularityError, match=r"train-0\.tar: the sample 'x\.y/c' needs one image and a label .*\['d\.webp\.t"
    ):
        webdataset.read(params(root))
    shard(root / "train-0.tar", [*members.items()][:-1])
    frame = webdataset.read(params(root)).frame
    assert frame["sample_id"].tolist() == ["train-0/x.y/b"]
    assert frame["label"].tolist() == ["7"]


def test_every_key_of_the_json_is_a_rank(root):
    shared = {"score": 0.5, "tags": ["a"], "url": None, "sha256": "00", "": "x"}  # no classes, or taken
    first = [{"label": 3, "genus": "Felis", "tame": True, **shared}, {"label": 11, "genus": "Canis", **shared}]
    second = [{"label": 3, "genus": "Acer"}, {"label": 3, "genus": "Acer", "size": 2}]
    shard(root / "train-0.tar", pairs(first, "json"))
    shard(root / "train-1.tar", pairs(second, "json"))
    found = webdataset.read(params(root, ranks=["genus", "label"]))
    assert found.ranks == ["label", "genus", "tame", "size"]
    assert found.frame["label"].tolist() == ["3", "11", "3", "3"]
    assert list(found.frame["genus"].cat.categories) == ["Acer", "Canis", "Felis"]
    assert found.frame["genus"].tolist() == ["Felis", "Canis", "Acer", "Acer"]
    assert found.frame["tame"].tolist()[0] == "true"
    assert found.frame["tame"].isna().tolist() == [False, True, True, True]
    assert found.frame["size"].isna().tolist() == [True, True, True, False]
    with pytest.raises(GranularityError, match=r"train-0\.tar: no known tame for 3 images, such as 'train-0/a1'"):
        run(root, ranks=["tame"])


def test_the_label_comes_from_cls_then_txt_then_json(root):
    all_three = pairs(["1"]) | {"a0.txt": "a caption", "a0.json": {"label": 5, "cls": 6, "kind": "x"}}
    shard(root / "train-0.tar", all_three)
    found = webdataset.read(params(root))
    assert found.ranks == ["label", "cls", "kind"]
    assert found.frame["label"].tolist() == ["1"]
    shard(root / "train-0.tar", pairs(["ash", "Birke"], "txt"))
    assert webdataset.read(params(root)).frame["label"].tolist() == ["ash", "Birke"]
    shard(root / "train-0.tar", pairs([{"cls": 4}], "json"))
    assert webdataset.read(params(root)).frame["label"].tolist() == ["4"]


def test_class_names_from_a_file(root):
    shard(root / "train-0.tar", pairs([2, 0, 2]))
    (root / "names.txt").write_text("wolf\ntench\nash\n")
    found = webdataset.read(params(root, labels="names.txt"))
    assert found.frame["label"].tolist() == ["ash", "wolf", "ash"]
    assert list(found.frame["label"].cat.categories) == ["wolf", "tench", "ash"]
    (root / "names.txt").write_text("n02124075\nn01440764\nn02119789")
    found = webdataset.read(params(root, ranks=["synset"], labels="names.txt"))
    assert found.frame["synset"].tolist() == ["n02119789", "n02124075", "n02119789"]


PNG = grey(5)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("b.cls", 1)], r"the sample 'b' needs one image and a label \(\.cls, \.json, \.txt\): \['cls'\]"),
        ([("b.png", PNG), ("b.jpg", PNG), ("b.cls", 1)], "the sample 'b' needs one image and a label"),
        ([("b.png", PNG), ("b.cls", 1)] * 2, "two samples that follow each other have the key 'b'"),
        ([("a0.png", PNG), ("a0.cls", 1)], "two images have the sample_id 'train-0/a0'"),
        ([("b.png", PNG), ("b.cls", b"\xff")], r"the sample 'b': its \.cls is malformed \(.*codec"),
        ([("b.png", PNG), ("b.cls", " \n")], r"train-0\.tar: no known label for 1 images, such as 'train-0/b'"),
        ([("b.png", PNG), ("b.cls", -1)], "no known label for 1 images, such as 'train-0/b'"),
        ([("b.png", PNG), ("b.json", {"x": 0.5})], "no known label for 1 images, such as 'train-0/b'"),
        ([("b.png", PNG), ("b.cls", 1), ("b.json", "{")], r"the sample 'b': its \.json is malformed .*no JSON"),
        ([("b.png", PNG), ("b.cls", 1), ("b.json", "3")], r"the sample 'b': its \.json is malformed \(not an object"),
    ],
)
def test_a_bad_sample_is_named(root, members, message):
    shard(root / "train-0.tar", [*pairs([1, 2]).items(), *members])
    with pytest.raises(GranularityError, match=message) as error:
        run(root)
    assert str(root) in str(error.value) and "\n" not in str(error.value)
    assert not (root.parent / "samples").exists()


def test_broken_archives_are_named(root):
    with pytest.raises(GranularityError, match="contains no archives"):
        webdataset.read(params(root))
    shard(root / "train-0.tar", pairs([1, 2]))
    whole = (root / "train-0.tar").read_bytes()
    (root / "train-1.tar.gz").write_bytes(gzip.compress(whole))
    with pytest.raises(GranularityError, match=r"train-1\.tar\.gz: is compressed; unpack it to a plain \.tar"):
        webdataset.read(params(root))
