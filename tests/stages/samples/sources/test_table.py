"""A table of paths and ranks, as CSV or Parquet."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.formats import columns
from granularity.stages.samples.sources import table
from granularity.store.artifacts import Artifact
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


def run(root: Path, labels: str = "images.csv", threads: int = 1, **over) -> Artifact:
    folder = root.parent / "samples"
    make(params(root, labels, **over), folder, threads=threads)
    return Artifact.open(folder, "samples")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_csv_table_goes_through_the_stage(root, threads):
    write(root)
    artifact = run(root, threads=threads)
    frame = artifact.table("samples.parquet")
    assert frame["sample_id"].tolist() == [row[0] for row in ROWS]
    assert frame["file"].tolist() == [row[0] for row in ROWS]
    assert frame["split"].tolist() == [row[1] for row in ROWS]
    assert frame["kind"].tolist() == [row[2] for row in ROWS]
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


@pytest.mark.parametrize("name", ["path", "file", "filename", "image"])
def test_the_names_of_a_path_column(root, name):
    write(root, header=(name, *HEADER[1:]))
    found = table.read(params(root))
    assert found.frame["file"].tolist() == [row[0] for row in ROWS]
    assert found.ranks == ["kind", "species", "location"]


def test_a_table_without_a_split(root):
    write(root, [row[:1] + row[2:] for row in ROWS], HEADER[:1] + HEADER[2:])
    frame = run(root, validation=2).table("samples.parquet")
    assert sorted(frame["split"]) == ["train", "train", "val", "val"]


def test_a_shifted_test_set(root):
    rows = [(*row, "OOD" if row[1] == "val" else "ID") for row in ROWS]
    write(root, rows, (*HEADER, "distribution"))
    assert run(root).table("samples.parquet")["distribution"].tolist() == ["ID", "ID", "ID", "OOD"]
    write(root, [*rows[:2], (*ROWS[2], "far"), rows[3]], (*HEADER, "distribution"))
    with pytest.raises(GranularityError, match=r"images\.csv: row 3: distribution is 'far', but can only be ID or OOD"):
        table.read(params(root))


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


def test_a_byte_order_mark_crlf_and_an_index_column_are_no_matter(root):
    (root / "images.csv").write_bytes(
        b"\xef\xbb\xbf,path,split,kind,species\r\n0,train/1.png,train,animal,cat\r\n1,val/1.png,val,plant,ash\r\n"
    )
    found = table.read(params(root))
    assert found.ranks == ["kind", "species"]
    assert found.frame["species"].tolist() == ["cat", "ash"]


def test_an_unused_column_may_have_gaps(root):
    write(root, [*ROWS[:3], (*ROWS[3][:4], "")])
    assert table.read(params(root)).frame["location"].tolist()[:3] == ["3", "10", "2"]
    with pytest.raises(GranularityError, match=r"images\.csv: row 4 has no location"):
        table.read(params(root, ranks=["kind", "location"]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("train/9.png", "train", "", "cat", "1"), "row 5 has no kind"),
        (("train/9.png", "", "animal", "cat", "1"), "row 5 has no split"),
        (("", "train", "animal", "cat", "1"), "row 5 has no path"),
        (("/etc/passwd", "train", "animal", "cat", "1"), "row 5: '/etc/passwd' is no path below samples.root"),
        (("train/../../x.png", "train", "animal", "cat", "1"), r"row 5: 'train/\.\./\.\./x\.png' is no path below"),
        (("a\0.png", "train", "animal", "cat", "1"), "row 5: 'a.x00.png' is no path below"),
        (("train/2.png", "train", "animal", "cat", "1"), "row 5: 'train/2.png' stands in an earlier row already"),
        (("train/9.png", "train"), "is no CSV table in UTF-8 .*Row #6: Expected 5 columns, got 2"),
        (("train/9.png", "train", "animal", "cat", "1", "2"), "Row #6: Expected 5 columns, got 6"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_bad_row_is_named(root, row, message, threads):
    write(root, [*ROWS, row])
    with pytest.raises(GranularityError, match=rf"images\.csv: .*{message}") as error:
        run(root, threads=threads)
    assert "\n" not in str(error.value)
    assert not (root.parent / "samples").exists()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_bad_row_far_down_is_named(root, threads):
    """In a later block of the file than the first, which is parsed with the header."""
    lines = [f"train/{i:060d}.png,train,animal,cat" for i in range(20_000)]
    (root / "images.csv").write_text("\n".join(["path,split,kind,species", *lines, "x.png"]))
    with pytest.raises(GranularityError, match=r"images\.csv: .*Row #20002: Expected 4 columns, got 1"):
        table.read(params(root), threads)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is no CSV table in UTF-8 \(Empty CSV file\)"),
        (b"path,kind,species\n", "has no rows"),
        (b"kind,species\nanimal,cat\n", r"has no column of paths \(path, file, filename, image\)"),
        (b"path,kind,species,kind\n1.png,animal,cat,plant\n", "has two columns 'kind'"),
        (b"path,kind,species\n1.png,animal,\xff\n", "is no CSV table in UTF-8"),
        (b"path,kind,sp\xff\n1.png,animal,cat\n", "is no CSV table in UTF-8"),
    ],
)
def test_a_file_that_is_no_such_table(root, content, message):
    (root / "images.csv").write_bytes(content)
    with pytest.raises(GranularityError, match=rf"images\.csv: {message}"):
        table.read(params(root))


def test_missing_things_are_named(root):
    with pytest.raises(GranularityError, match=r"samples\.labels: source 'table' needs"):
        table.read(params(root, None))
    with pytest.raises(GranularityError, match=r"images\.csv: cannot be read \(.*No such file"):
        table.read(params(root))
    with pytest.raises(GranularityError, match=r"images\.parquet: cannot be read \(.*No such file"):
        table.read(params(root, "images.parquet"))
    write(root)
    with pytest.raises(GranularityError, match=r"there is no rank 'genus'; .* has \['kind', 'species', 'location'\]"):
        run(root, ranks=["kind", "genus"])
    (root / "val/1.png").unlink()
    with pytest.raises(GranularityError, match=r"val/1\.png: cannot be read"):
        run(root)
    with pytest.raises(GranularityError, match=r"there is no split 'test'; the source has \['train', 'val'\]"):
        run(root, val="test")


def test_a_broken_parquet_table_is_named(root):
    file = root / "images.parquet"
    pd.DataFrame(ROWS, columns=HEADER).to_parquet(file)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(GranularityError, match=r"images\.parquet: is truncated or no Parquet file"):
        table.read(params(root, "images.parquet"))
    broken = pa.array([b"a\xff"]).view(pa.string())
    pq.write_table(pa.table({"path": ["1.png"], "kind": broken, "species": ["cat"]}), file)
    with pytest.raises(GranularityError, match=r"images\.parquet: is truncated or no Parquet file .*UTF8"):
        table.read(params(root, "images.parquet"))


def test_order_of_class_names():
    assert columns.ordered(["b", "10", "9"]) == ["10", "9", "b"]
    assert columns.ordered(["10", "9", "-1"]) == ["-1", "9", "10"]
    assert columns.ordered(["10", "9", "07"]) == ["07", "10", "9"]  # a code, not a number
