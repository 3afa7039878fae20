"""Your own images in folders: levels, splits, taxonomies, names."""

from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.stages.samples import source
from support.sampling import of_folder, save, section, table_of


def test_folder_levels_are_ranks(tmp_path):
    for name in ("animal/cat/1.png", "animal/cat/2.PNG", "animal/dog/1.png", "plant/rose/1.png", "plant/rose/x.txt"):
        save(tmp_path / "root" / name, format="PNG")
    table = table_of(of_folder(tmp_path / "root", "kind", "species"))
    names = ["animal/cat/1.png", "animal/cat/2.PNG", "animal/dog/1.png", "plant/rose/1.png"]
    assert table["sample_id"].tolist() == names
    assert table["kind"].tolist() == ["animal", "animal", "animal", "plant"]
    assert table["species"].tolist() == ["cat", "cat", "dog", "rose"]
    assert Counter(table["split"]) == {"train": 3, "val": 1}


def test_copies_and_raw_files_beside_photographs_are_none(tmp_path):
    """They would be images of both splits."""
    for name in ("1.JPG", "1.JPG_original", "1.jpg~", "1.NEF", "2", "3.1"):
        save(tmp_path / "root/cat" / name, format="PNG")
    names = table_of(of_folder(tmp_path / "root", "species"))["file"].tolist()
    assert names == ["cat/1.JPG", "cat/2", "cat/3.1"]


def test_a_test_split_without_labels_is_left_out(tmp_path, capsys):
    root = fill(tmp_path / "root", "train/cat", "train/dog", "test")
    assert splits(root, "species") == splits(root, "species", train="train") == {"train": 4}
    assert "test: left out: has no folders of classes" in capsys.readouterr().err
    with pytest.raises(GranularityError, match="ask for 2"):
        splits(root, "species", val="test")


def test_one_name_below_two_parents_is_two_classes(tmp_path):
    for name in ("bird/other/1.png", "bird/crow/1.png", "fish/other/1.png", "fish/eel/1.png"):
        save(tmp_path / "root" / name)
    table = table_of(of_folder(tmp_path / "root", "kind", "species"))
    assert table["species"].tolist() == ["crow", "bird/other", "eel", "fish/other"]
    assert table["kind"].tolist() == ["bird", "bird", "fish", "fish"]


def test_an_image_at_another_depth_is_refused(tmp_path):
    save(tmp_path / "root" / "cat" / "1.png")
    save(tmp_path / "root" / "dog" / "big" / "1.png")
    with pytest.raises(GranularityError, match=r"dog/big/1\.png: is 2 folders below .* ask for 1"):
        of_folder(tmp_path / "root", "species")


def fill(root: Path, *folders: str) -> Path:
    """Two images in each folder, each unlike the others."""
    for i, name in enumerate(folders):
        save(root / name / "a.png", Image.new("L", (4, 4), 2 * i))
        save(root / name / "b.png", Image.new("L", (4, 4), 2 * i + 1))
    return root


def splits(root: Path, *ranks: str, **over) -> dict[str, int]:
    """How many images the source says that each published split has."""
    params = section(source="folder", root=root, ranks=ranks, target=ranks[0], **over)
    frame = source.find(params).frame
    return dict(Counter(frame["split"])) if "split" in frame else {}


@pytest.mark.parametrize("held_out", ["test", "val", "validation", "valid"])
def test_train_and_any_name_of_a_validation_set_are_splits(tmp_path, held_out):
    root = fill(tmp_path / "root", "train/cat", "train/dog", f"{held_out}/cat")
    assert splits(root, "species") == {"train": 4, held_out: 2}
    table = table_of(of_folder(root, "species"))
    assert Counter(table["split"]) == {"train": 4, "val": 2}
    assert table.groupby("species", observed=True).size().to_dict() == {"cat": 4, "dog": 2}
    assert set(table.loc[table["split"] == "val", "file"]) == {f"{held_out}/cat/a.png", f"{held_out}/cat/b.png"}


@pytest.mark.parametrize(
    ("folders", "ranks", "over", "words"),
    [
        (["train/cat", "test/cat"], "kind species", {}, r"is 2 folders .* and the split ask for 3"),
        (["train/cat", "test/cat"], "species", {"val": "val"}, "samples.val: .* no folder 'val', but 'test', 'train'"),
        (["train/cat", "val/cat", "masks/cat"], "species", {}, "root/masks: is beside 'train', 'val', but is"),
        (["a/cat", "b/cat", "c/cat"], "species", {"train": "a", "val": "b"}, "root/c: is beside 'a', 'b', but is"),
        (["val/cat", "test/cat"], "species", {}, r"samples\.train: name the split to train on"),
        (["Train/cat", "Test/cat"], "kind species", {}, "'Test', 'Train' look like splits"),
        (["train_full/cat", "dev2/cat"], "kind species", {}, "'dev2', 'train_full' look like splits"),
        (["Training/cat", "testing/cat", "other/cat"], "species", {}, "'Training', 'testing' look like splits"),
        (["2021/cat", "2022/cat"], "species", {}, r"is 2 folders .* ask for 1; if '2021' is a split"),
    ],
)
def test_a_name_that_may_be_a_split_is_never_silently_a_rank(tmp_path, folders, ranks, over, words):
    root = fill(tmp_path / "root", *folders)
    with pytest.raises(GranularityError, match=words):
        splits(root, *ranks.split(), **over)


@pytest.mark.parametrize("split", ["", "train/"])
def test_ranks_of_a_taxonomy_have_no_folder_level(tmp_path, split):
    root = fill(tmp_path / "root", *(f"{split}{digit}" for digit in ("six", "one", "four")))
    file = tmp_path / "taxonomy.csv"
    file.write_text("# by hand\ndigit,loops\none,none\nfour,one #1\nsix,one #1\n")
    params = section(source="folder", root=root, ranks=["loops", "digit"], target="loops", taxonomy=file)
    assert source.find(params).ranks == ["digit"]
    table = table_of(of_folder(root, "loops", "digit", taxonomy=file))
    assert dict(zip(table["digit"], table["loops"], strict=True)) == {"one": "none", "four": "one #1", "six": "one #1"}
    assert table["digit"].cat.categories.tolist() == ["one", "four", "six"]  # in the order of the file
    assert table["loops"].cat.categories.tolist() == ["none", "one #1"]
