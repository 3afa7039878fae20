"""The section `samples`: keys of every source and of some, checks of each, and files that count."""

import json

import pytest
from pydantic import ValidationError

from granularity.base import extensions
from granularity.stages.samples import options
from granularity.stages.samples.options import Condition
from granularity.stages.samples.sources import FILES as READ_BY
from support.sampling import section

SOURCES = extensions.names("source")


def mistake(**values) -> str:
    with pytest.raises(ValidationError) as error:
        section(**values)
    (one,) = error.value.errors()
    return one["msg"].removeprefix("Value error, ")


@pytest.mark.parametrize(
    ("key", "value", "takers"),
    [
        ("hub", "a/b", ["parquet"]),
        ("labels", "x.csv", ["table", "webdataset", "inaturalist", "imagenet"]),
        ("shifted", {"v2": "."}, ["imagenet"]),
    ],
)
@pytest.mark.parametrize("source", SOURCES)
def test_a_key_of_other_sources_is_refused(source, key, value, takers):
    values = {"source": source, "root": "." if source != "digits" else None}
    values |= {"labels": "own.csv"} if source == "table" else {}
    if source in takers:
        extra = {"root": None} if key == "hub" else {"extra_splits": ["v2"]} if key == "shifted" else {}
        assert key in options.of_source(section(**{**values, **extra, key: value}))
    elif key == "labels" and READ_BY.get(source) == "table":
        assert mistake(**values | {key: value}) == f"labels: '{source}' finds its own files; remove this key"
    else:
        names = ", ".join(map(repr, takers))
        message = f"{key}: works only for source{'s' * (len(takers) > 1)} {names}, not for '{source}'"
        assert mistake(**values | {key: value}) == message


def test_a_source_that_there_is_not_is_told_from_those_that_there_are():
    assert all(f"'{name}'" in mistake(source="fodler") for name in SOURCES)


@pytest.mark.parametrize("source", SOURCES)
def test_a_root_is_needed_but_for_the_digits_and_the_hub(source):
    if source == "digits":
        section(source=source)
    else:
        assert mistake(source=source).startswith(f"root: source '{source}' needs the folder of the data set")
    if source == "parquet":
        section(source=source, hub="a/b")
        assert mistake(source=source, hub="a/b", root=".").startswith("root: source 'parquet' needs")


def test_the_digits_check_their_ranks_and_their_number():
    assert mistake(ranks=["digit"], target="digit") == "ranks: the digits have exactly the ranks [loops, digit]"
    conditions = [Condition(train_size=size) for size in (897, 898, "all", 1797)]
    found = [*options.complaints(section(validation=900), conditions)]
    assert [one.split(" validation")[0] for one in found] == [
        "conditions: train_size 898 and 900",
        "conditions: train_size 1797 and 900",
    ]
    assert not [*options.complaints(section(validation=0.5), conditions[:2])]  # half of the images are 898


FILES = {  # source -> options, and the files of labels that it reads then
    "table": ({"labels": "images.csv"}, ["images.csv"]),
    "webdataset": ({"labels": "names.txt"}, ["names.txt"]),
    "inaturalist": (
        {"labels": "categories.json", "train": "train_mini"},
        ["train_mini.json", "val.json", "categories.json"],
    ),
    "imagenet": (
        {"labels": "kit/truth.txt", "shifted": {"objectnet": "{root}/objectnet"}, "extra_splits": ["objectnet"]},
        [
            "val/val_annotations.txt",
            "kit/truth.txt",
            "kit/meta.mat",
            "ILSVRC2012_devkit_t12/data/meta.mat",
            "objectnet/mappings/folder_to_objectnet_label.json",
            "objectnet/mappings/objectnet_to_imagenet_1k.json",
            "objectnet/mappings/pytorch_to_imagenet_2012_id.json",
            "objectnet/mappings/imagenet_to_label_2012_v2",
        ],
    ),
    "parquet": ({}, ["README.md"]),
    "wilds": ({}, ["metadata.csv", "categories.csv"]),
    "domainnet": ({"train": "real_train", "val": "real_test"}, ["real_train.txt", "splits/real_test.txt"]),
    "pacs": (
        {"train": "photo_train", "val": "photo_crossval"},
        ["splits/photo_train_kfold.txt", "splits/photo_crossval_kfold.txt"],
    ),
    "folder": ({}, []),
}


@pytest.mark.parametrize("source", FILES)
def test_the_files_of_labels_that_a_source_reads(tmp_path, source):
    given, names = FILES[source]
    given = json.loads(json.dumps(given).replace("{root}", str(tmp_path)))
    (tmp_path / "taxonomy.csv").write_text("digit,loops\n")
    (tmp_path / "wordnet").mkdir()
    more = {"taxonomy": tmp_path / "taxonomy.csv", "wordnet": tmp_path / "wordnet"}
    for name in [*names, "wordnet/data.noun"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("something")
    params = section(source=source, root=tmp_path, **more, **given)
    expected = ["taxonomy.csv", "wordnet/data.noun", *names]
    assert options.files(params) == [str(tmp_path / name) for name in expected]
    for name in names:
        (tmp_path / name).unlink()
    assert options.files(params) == [str(tmp_path / name) for name in expected[:2]]
