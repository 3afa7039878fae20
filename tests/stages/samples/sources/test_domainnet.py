"""DomainNet. Layout of the lists: http://ai.bu.edu/M3SDA/ ("clipart/aircraft_carrier/clipart_001_000018.jpg 0")."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.sources import domainnet
from granularity.store.artifacts import Artifact
from support.sampling import make, section

LISTS = {
    "real_train": """\
real/zebra/real_345_000001.jpg 344
real/aircraft_carrier/real_001_000018.jpg 0
real/t-shirt/real_328_000002.jpg 327
real/zebra/real_345_000002.jpg 344
""",
    "real_test": "real/t-shirt/real_328_000001.jpg 327\nreal/zebra/real_345_000003.jpg 344\n",
    "painting_test": "painting/zebra/painting_345_000001.jpg 344",
    "clipart_train": "not read",
}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "domainnet"
    root.mkdir()
    value = 0
    for name, text in LISTS.items():
        (root / f"{name}.txt").write_text(text)
        for line in text.splitlines():
            if "/" in line:
                file = root / line.split(" ")[0]
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.new("L", (2, 2), value).save(file, "PNG")
                value += 10
    return root


def params(root: Path, **over):
    over = {"ranks": ["label"], "target": "label", "train": "real_train", **over}
    return section(source="domainnet", root=root, **over)


def run(root: Path, **over) -> Artifact:
    folder = root.parent / "samples"
    make(params(root, **over), folder)
    return Artifact.open(folder, "samples")


@pytest.mark.parametrize("folder", [".", "splits"])
def test_a_shift_of_domain_goes_through_the_stage(root, folder):
    for name in LISTS:
        (root / folder).mkdir(exist_ok=True)
        (root / f"{name}.txt").rename(root / folder / f"{name}.txt")
    artifact = run(root, val="real_test", extra_splits=["painting_test"], ranks=["label", "domain"])
    frame = artifact.table("samples.parquet")
    assert frame["sample_id"].iloc[[0, 6]].tolist() == [
        "real/zebra/real_345_000001.jpg",
        "painting/zebra/painting_345_000001.jpg",
    ]
    assert frame["split"].tolist() == ["train"] * 4 + ["val"] * 2 + ["painting_test"]
    assert frame["distribution"].tolist() == ["ID"] * 6 + ["OOD"]
    assert frame["label"].tolist() == ["zebra", "aircraft_carrier", "t-shirt", "zebra", "t-shirt", "zebra", "zebra"]
    assert list(frame["label"].cat.categories) == ["aircraft_carrier", "t-shirt", "zebra"]
    assert frame["domain"].tolist() == ["real"] * 6 + ["painting"]
    images = Images(artifact)
    assert [images.load(i, "L").getpixel((0, 0)) for i in range(7)] == [0, 10, 20, 30, 40, 50, 60]


def test_the_order_of_classes_is_that_of_their_numbers(root):
    """Not the alphabet's, and 10 comes after 9."""
    (root / "real_train.txt").write_text("real/a/1.jpg 10\nreal/b/2.jpg 9\nreal/c/3.jpg 0\n")
    found = domainnet.read(params(root))
    assert list(found.frame["label"].cat.categories) == ["c", "b", "a"]
    assert found.frame["label"].tolist() == ["a", "b", "c"]


def test_the_domain_that_is_trained_on_is_in_distribution(root):
    (root / "clipart_train.txt").write_text("clipart/zebra/clipart_345_000001.jpg 344\n")
    frame = domainnet.read(params(root, train="clipart_train", val="real_test")).frame
    assert frame["distribution"].tolist() == ["ID", "OOD", "OOD"]
    assert frame["domain"].tolist() == ["clipart", "real", "real"]
    assert list(frame["domain"].cat.categories) == ["clipart", "real"]


def test_without_a_split_for_validation_images_are_held_out(root):
    frame = run(root, validation=1).table("samples.parquet")
    assert sorted(frame["split"]) == ["train", "train", "train", "val"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("real/zebra/real_345_000004.jpg 34", "class 'zebra' has number 34, but 344 before"),  # truncated
        ("real/horse/real_100_000001.jpg 344", "class 'horse' has number 344, but so has 'zebra'"),
        ("real/zebra/real_345_00", r"'real/zebra/real_345_00' is no 'real/CLASS/IMAGE NUMBER'"),
        ("real/zebra/real_345_000004.jpg", "is no 'real/CLASS/IMAGE NUMBER'"),
        ("real/zebra/real_345_000004.jpg x", "is no 'real/CLASS/IMAGE NUMBER'"),
        ("real/zebra/real_345_000004.jpg -1", "is no 'real/CLASS/IMAGE NUMBER'"),
        ("zebra/real_345_000004.jpg 344", "is no 'real/CLASS/IMAGE NUMBER'"),
        ("/real/zebra/real_345_000004.jpg 344", "is no 'real/CLASS/IMAGE NUMBER'"),
        ("real/../real_345_000004.jpg 344", "is no 'real/CLASS/IMAGE NUMBER'"),
        ("", "'' is no 'real/CLASS/IMAGE NUMBER'"),
        ("sketch/zebra/sketch_345_000004.jpg 344", "'sketch' is not the domain of this list, real"),
        ("real/zebra/real_345_000001.jpg 344", "'real/zebra/real_345_000001.jpg' stands in a list already"),
    ],
)
def test_a_bad_line_is_named(root, line, message):
    (root / "real_test.txt").write_text(LISTS["real_test"] + line + "\n")
    with pytest.raises(GranularityError, match=rf"real_test\.txt: line 3: .*{message}") as error:
        run(root, val="real_test")
    assert "\n" not in str(error.value)
    assert not (root.parent / "samples").exists()


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"train": None}, r"samples\.train: name the split to train on; .* has \['clipart_train', 'painting_test', 'r"),
        ({"train": "train"}, r"samples\.train: there is no list 'train\.txt'; .* has \['clipart_train'"),
        ({"val": "sketch_test"}, r"samples\.val: there is no list 'sketch_test\.txt'"),
        ({"extra_splits": ["../x_test"]}, r"samples\.extra_splits\[0\]: there is no list"),
        ({"train": "clipart_train"}, r"clipart_train\.txt: line 1: 'not read' is no 'clipart/CLASS/IMAGE NUMBER'"),
    ],
)
def test_a_split_that_is_not_there_is_named(root, over, message):
    with pytest.raises(GranularityError, match=message):
        domainnet.read(params(root, **over))


def test_broken_lists_are_named(root):
    (root / "real_train.txt").write_bytes(b"")
    with pytest.raises(GranularityError, match=r"real_train\.txt: is empty"):
        domainnet.read(params(root))
    (root / "real_train.txt").write_bytes(b"real/\xff/1.jpg 0\n")
    with pytest.raises(GranularityError, match=r"real_train\.txt: is no text in UTF-8"):
        domainnet.read(params(root))
    with pytest.raises(GranularityError, match=r"holds no lists of DomainNet"):
        domainnet.read(params(root / "real"))


def test_a_missing_image_is_named(root):
    (root / "real/zebra/real_345_000002.jpg").unlink()
    with pytest.raises(GranularityError, match=r"real/zebra/real_345_000002\.jpg: cannot be read"):
        run(root, val="real_test")
