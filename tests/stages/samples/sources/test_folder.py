"""Your own images in folders: levels, splits, taxonomies, names."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.stages.samples import source
from support import tasks
from support.sampling import make, of_folder, save, section, table_of

WORDNET = """00001740 03 n 01 entity 0 000 | that which is
00004258 03 n 02 living_thing 0 animate_thing 0 001 @ 00001740 n 0000 | a living entity
00000010 03 n 01 animal 0 001 @ 00004258 n 0000 | moves
00000020 03 n 01 artifact 0 001 @ 00001740 n 0000 | made
"""


def test_folder_levels_are_ranks(tmp_path):
    for name in ("animal/cat/1.png", "animal/cat/2.PNG", "animal/dog/1.png", "plant/rose/1.png", "plant/rose/x.txt"):
        save(tmp_path / "root" / name, format="PNG")
    table = table_of(of_folder(tmp_path / "root", "kind", "species"))
    assert table["sample_id"].tolist() == [
        "animal/cat/1.png",
        "animal/cat/2.PNG",
        "animal/dog/1.png",
        "plant/rose/1.png",
    ]
    assert table["kind"].tolist() == ["animal", "animal", "animal", "plant"]
    assert table["species"].tolist() == ["cat", "cat", "dog", "rose"]
    assert Counter(table["split"]) == {"train": 3, "val": 1}


def test_train_and_val_folders_are_the_split(tmp_path):
    for name in ("train/cat/1.png", "train/cat/2.png", "train/dog/1.png", "val/cat/1.png", "val/eel/1.png"):
        save(tmp_path / "root" / name)
    table = table_of(of_folder(tmp_path / "root", "species", validation=4)).set_index("sample_id")
    assert table["split"].to_dict() == {name: name.split("/")[0] for name in table.index}
    assert len(table) == 5
    assert table["species"].tolist() == ["cat", "cat", "dog", "cat", "eel"]
    smaller = table_of(of_folder(tmp_path / "root", "species", train_size=1, output="smaller"))
    assert Counter(smaller["split"]) == {"train": 1, "val": 2}


def test_one_name_below_two_parents_is_two_classes(tmp_path):
    for name in ("bird/other/1.png", "bird/crow/1.png", "fish/other/1.png", "fish/eel/1.png"):
        save(tmp_path / "root" / name)
    table = table_of(of_folder(tmp_path / "root", "kind", "species"))
    assert table["species"].tolist() == ["crow", "bird/other", "eel", "fish/other"]
    assert table["kind"].tolist() == ["bird", "bird", "fish", "fish"]


@pytest.mark.parametrize(
    "name", ["großer Bär", "日本語", 'it\'s "quoted"', "a b  c", "x,y;z", "{}", "$(echo)", "wide\u3000space\u202f"]
)
def test_names_that_people_give_survive(tmp_path, name):
    save(tmp_path / "root" / name / f"{name} 1.png")
    save(tmp_path / "root" / "plain" / "1.png")
    folder = of_folder(tmp_path / "root", "class")
    table = table_of(folder).set_index("class")
    assert table.loc[name, "sample_id"] == f"{name}/{name} 1.png"
    tasks.run("pixels", tmp_path / "pixels", {"size": 4}, samples=folder)


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    save(tmp_path / "root" / "cat" / "1.png")
    try:
        os.rename(tmp_path / "root/cat/1.png", os.fsencode(tmp_path / "root/cat") + b"/\xff.png")
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    with pytest.raises(GranularityError, match=r"udcff\.png': its name is not UTF-8"):
        of_folder(tmp_path / "root", "class")


def test_an_image_at_another_depth_is_refused(tmp_path):
    save(tmp_path / "root" / "cat" / "1.png")
    save(tmp_path / "root" / "dog" / "big" / "1.png")
    with pytest.raises(GranularityError, match=r"dog/big/1\.png: lies 2 folders below .* ask for 1"):
        of_folder(tmp_path / "root", "species")


# ---------------------------------------------------------------- splits


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


def test_splits_of_the_names_that_the_configuration_gives(tmp_path):
    root = fill(tmp_path / "root", "Training/cat", "Testing/cat", "odd/cat")
    names = {"train": "Training", "val": "Testing", "extra_splits": ["odd"]}
    assert splits(root, "species", **names) == {"Training": 2, "Testing": 2, "odd": 2}
    assert Counter(table_of(of_folder(root, "species", **names))["split"]) == {"train": 2, "val": 2, "odd": 2}


def test_only_the_splits_that_are_asked_for_are_read(tmp_path):
    root = fill(tmp_path / "root", "train/cat", "val/cat", "test")  # of which the labels were kept secret
    assert splits(root, "species") == {"train": 2, "val": 2}
    with pytest.raises(GranularityError, match=r"test/a\.png: lies 1 folders below .* \['species'\] and the split ask"):
        splits(root, "species", extra_splits=["test"])


def test_a_single_split_is_one(tmp_path):
    root = fill(tmp_path / "root", "train/cat", "train/dog")
    assert splits(root, "species") == {"train": 4}
    assert Counter(table_of(of_folder(root, "species"))["split"]) == {"train": 3, "val": 1}


@pytest.mark.parametrize(
    ("folders", "ranks", "over", "words"),
    [
        (["train/cat", "test/cat"], "kind species", {}, r"lies 2 folders .* and the split ask for 3"),
        (
            ["train/cat", "test/cat"],
            "species",
            {"val": "val"},
            "samples.val: .* no folder 'val', but 'test', 'train'",
        ),
        (
            ["train/cat", "val/cat", "masks/cat"],
            "species",
            {},
            "root/masks: lies beside 'train', 'val', but is",
        ),
        (
            ["a/cat", "b/cat", "c/cat"],
            "species",
            {"train": "a", "val": "b"},
            "root/c: lies beside 'a', 'b', but is",
        ),
        (["val/cat", "test/cat"], "species", {}, r"samples\.train: name the split to train on"),
        (["Train/cat", "Test/cat"], "kind species", {}, "'Test', 'Train' look like splits"),
        (["train_full/cat", "dev2/cat"], "kind species", {}, "'dev2', 'train_full' look like splits"),
        (["Training/cat", "testing/cat", "other/cat"], "species", {}, "'Training', 'testing' look like splits"),
        (
            ["2021/cat", "2022/cat"],
            "species",
            {},
            r"lies 2 folders .* ask for 1; if the first is a split",
        ),
    ],
)
def test_a_name_that_may_be_a_split_is_never_silently_a_rank(tmp_path, folders, ranks, over, words):
    root = fill(tmp_path / "root", *folders)
    with pytest.raises(GranularityError, match=words):
        splits(root, *ranks.split(), **over)
    with pytest.raises(GranularityError, match=words):
        of_folder(root, *ranks.split(), **over)


def test_a_train_is_a_vehicle_too(tmp_path):
    root = fill(tmp_path / "root", "train", "bus", "test tube", "tram")
    assert splits(root, "species") == {}
    assert set(table_of(of_folder(root, "species"))["species"]) == {"train", "bus", "test tube", "tram"}


# ---------------------------------------------------------------- ranks that need no folder


def taxonomy(file: Path, text: str = "digit,loops\none,none\nfour,one\nsix,one\n") -> Path:
    file.write_text(text)
    return file


@pytest.mark.parametrize("split", ["", "train/"])
def test_ranks_of_a_taxonomy_have_no_folder_level(tmp_path, split):
    root = fill(tmp_path / "root", *(f"{split}{digit}" for digit in ("six", "one", "four")))
    file = taxonomy(tmp_path / "taxonomy.csv")
    params = section(source="folder", root=root, ranks=["loops", "digit"], target="loops", taxonomy=file)
    assert source.find(params).ranks == ["digit"]
    table = table_of(of_folder(root, "loops", "digit", taxonomy=file))
    assert dict(zip(table["digit"], table["loops"], strict=True)) == {"one": "none", "four": "one", "six": "one"}
    assert table["digit"].cat.categories.tolist() == ["one", "four", "six"]  # in the order of the file
    assert table["loops"].cat.categories.tolist() == ["none", "one"]


def test_a_taxonomy_of_a_level_that_is_no_rank_itself(tmp_path):
    root = fill(tmp_path / "root", "six", "one")
    file = taxonomy(tmp_path / "taxonomy.csv")
    table = table_of(of_folder(root, "loops", taxonomy=file))
    assert dict(zip(table["sample_id"].str[:3], table["loops"], strict=True)) == {"one": "none", "six": "one"}


def test_a_folder_that_the_taxonomy_does_not_know_is_named(tmp_path):
    root = fill(tmp_path / "root", "six", "ten")
    file = taxonomy(tmp_path / "taxonomy.csv")
    with pytest.raises(GranularityError, match=r"taxonomy\.csv: has no row for 1 classes, such as 'ten'"):
        of_folder(root, "loops", "digit", taxonomy=file)


def test_the_rank_of_wordnet_has_no_folder_level(tmp_path):
    params = section(
        source="folder",
        root=fill(tmp_path / "root", "n00000010", "n00000020"),
        ranks=["living_thing", "synset"],
        target="living_thing",
        wordnet=tmp_path,
        validation=1,
    )
    (tmp_path / "data.noun").write_text(WORDNET)
    assert source.find(params).ranks == ["synset"]
    table = table_of(make(params, tmp_path / "samples"))
    assert table["living_thing"].tolist() == ["living thing", "living thing", "other", "other"]


# ---------------------------------------------------------------- what is refused


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "root" / "cat").mkdir(parents=True)
    (tmp_path / "root" / "cat" / "notes.txt").write_text("no image")
    with pytest.raises(GranularityError, match=r"root: holds no images"):
        of_folder(tmp_path / "root", "species")


def test_an_unreadable_image_is_named_as_unreadable(tmp_path):
    save(tmp_path / "root" / "cat" / "1.png")
    (tmp_path / "root" / "cat" / "2.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(GranularityError, match=r"cat/2\.png: cannot be read"):
        of_folder(tmp_path / "root", "species")
    assert not (tmp_path / "samples").exists()
