"""A table of paths and ranks, as CSV or Parquet; tests/workflow/test_fuzz_inputs.py has the broken ones."""

import csv
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.sources import table
from granularity.store.artifact import Artifact
from support.sampling import make, section

ROWS = [
    ("train/1.png", "train", "animal", "cat", "3"),
    ("train/2.png", "train", "plant", "ash, mountain", "10"),
    ("train/3.png", "train", "animal", "NA", "2"),
    ("val/1.png", "val", "animal", "cat", "10"),
]
HEADER = ("path", "split", "kind", "species", "location")


@pytest.fixture
def root(tmp_path):
    for i, (path, *_) in enumerate(ROWS):
        file = tmp_path / "data" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2), 10 * i).save(file)
    return tmp_path / "data"


def write(root: Path, rows=ROWS, header=HEADER, name="images.csv") -> str:
    with (root / name).open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return name


def params(root: Path, labels: str | None = "images.csv", **over):
    over = {"ranks": ["kind", "species"], "target": "kind", **over}
    return section(source="table", root=root, labels=labels, **over)


def run(root: Path, labels: str = "images.csv", **over) -> Artifact:
    folder = root.parent / "samples"
    make(params(root, labels, **over), folder)
    return Artifact.open(folder, "samples")


def test_a_csv_table_goes_through_the_stage(root):
    write(root)
    artifact = run(root)
    frame = artifact.table("samples.parquet")
    columns = [frame[name].tolist() for name in ("sample_id", "split", "kind")]
    assert columns == [[row[i] for row in ROWS] for i in range(3)]
    assert frame["file"].tolist() == frame["sample_id"].tolist()
    assert frame["species"].tolist() == ["cat", "ash, mountain", "NA", "cat"]  # NA is a name like any other
    assert "distribution" not in frame
    images = Images(artifact)
    assert [images.load(i, "L").getpixel((0, 0)) for i in range(4)] == [0, 10, 20, 30]


def test_all_other_columns_are_ranks_in_their_order(root):
    write(root)
    found = table.read(params(root))
    assert found.ranks == ["kind", "species", "location"]
    assert list(found.frame["species"].cat.categories) == ["NA", "ash, mountain", "cat"]
    assert list(found.frame["location"].cat.categories) == ["2", "3", "10"]  # of the numbers, not of the digits


def test_a_shifted_test_set(root):
    rows = [(*row, "OOD" if row[1] == "val" else "ID") for row in ROWS]
    write(root, rows, (*HEADER, "distribution"))
    assert run(root).table("samples.parquet")["distribution"].tolist() == ["ID", "ID", "ID", "OOD"]
    write(root, [*rows[:2], (*ROWS[2], "far"), rows[3]], (*HEADER, "distribution"))
    with pytest.raises(GranularityError, match=r"no known distribution for 1 images, such as 'train/3\.png'"):
        run(root)


def test_a_parquet_table_is_the_same(root):
    """As pandas writes it: numbers, a categorical with a class that no row has, and its index as a column."""
    frame = pd.DataFrame(ROWS, columns=HEADER).astype({"location": int})
    frame["kind"] = pd.Categorical(frame["kind"], ["plant", "fungus", "animal"])
    frame["score"] = 0.5  # no classes
    frame.set_index(pd.Index([7, 8, 9, 10])).to_parquet(root / "images.parquet")
    write(root)
    found, expected = table.read(params(root, "images.parquet")), table.read(params(root))
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    images = Images(run(root, "images.parquet"))
    assert images.load(3, "L").getpixel((0, 0)) == 30


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("train/9.png", "train", "", "cat", "1"), "no known kind for 1 images, such as 'train/9.png'"),
        (("a\0.png", "train", "animal", "cat", "1"), "'a.x00.png' is not a path below samples.root"),
        (("train/2.png", "train", "animal", "cat", "1"), "two images have the sample_id 'train/2.png'"),
        (("train/9.png", "train"), "is not a CSV table in UTF-8 .*Row #6: Expected 5 columns, got 2"),
        (("train/9.png", "train", "animal", 'cat"\n', "1"), "the species .* spans several lines"),
        (
            ("train/9.png", "train", "animal", "cat", "1\ntrain/8.png,train,animal,cat,1"),
            "the location .* several lines",
        ),
    ],
)
def test_a_bad_row_is_named(root, row, message):
    write(root, [*ROWS, row])
    with pytest.raises(GranularityError, match=rf"images\.csv: .*{message}"):
        run(root)


def test_what_nobody_asked_for_may_have_several_lines_or_no_labels(root):
    write(root, [*ROWS[:-1], (*ROWS[-1][:-1], "one line\nand another"), ("test/1.png", "test", "", "", "")])
    assert run(root, train="train", val="val").table("samples.parquet")["split"].tolist() == ["train"] * 3 + ["val"]


def test_missing_things_are_named(root):
    with pytest.raises(ValueError, match=r"labels: source 'table' needs"):
        params(root, None)
    write(root)
    with pytest.raises(GranularityError, match=r"there is no rank 'genus'; .* has \['kind', 'species', 'location'\]"):
        run(root, ranks=["kind", "genus"])
    with pytest.raises(GranularityError, match=r"there is no split 'test'; the source has \['train', 'val'\]"):
        run(root, val="test")


def test_text_of_a_parquet_table_that_is_not_utf8_is_named(root):
    broken = pa.array([b"a\xff"]).view(pa.string())
    pq.write_table(pa.table({"path": ["1.png"], "kind": broken, "species": ["cat"]}), root / "images.parquet")
    with pytest.raises(GranularityError, match=r"images\.parquet: is truncated or not a Parquet file .*UTF8"):
        table.read(params(root, "images.parquet"))
