"""WILDS' iWildCam and Camelyon17.

Layout: https://github.com/p-lambda/wilds, wilds/datasets/*_dataset.py; the header of iWildCam's metadata.csv as in
dataset_preprocessing/iwildcam/create_split.py, of Camelyon17's as in dataset_preprocessing/camelyon17 (both with
pandas' index as a first column without a name).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.sources import wilds
from granularity.store.artifacts import Artifact
from support.sampling import make, section

IWILDCAM = """\
,split,location_remapped,location,sequence_remapped,seq_id,y,category_id,datetime,filename,image_id
0,id_test,10,40,1,aa,0,0,2013-06-05 05:44:19.000,a.jpg,a
1,id_val,10,40,2,ab,1,2,2013-06-06 05:44:19.000,b.jpg,b
2,test,9,39,3,ac,2,10,2013-06-07 05:44:19.000,c.jpg,c
3,train,10,40,4,ad,2,10,2013-06-08 05:44:19.000,d.jpg,d
4,train,10,40,4,ad,0,0,2013-06-08 05:44:20.000,e.jpg,e
5,val,2,31,5,ae,1,2,2013-06-09 05:44:19.000,f.jpg,f
"""
CATEGORIES = """\
y,category_id,name
0,0,empty
1,2,tayassu pecari
2,10,"crax, rubra"
99999,3,dasyprocta punctata
99999,4,pecari tajacu
"""
CAMELYON = """\
,patient,node,x_coord,y_coord,tumor,slide,center,split
0,004,4,3328,21792,1,0,0,0
1,004,4,3200,22272,1,0,0,1
2,020,2,5504,100,0,10,1,1
3,040,0,1,2,1,20,2,0
4,060,1,7,8,0,30,3,1
5,099,4,7,8,0,49,4,0
"""


def image(file: Path, value: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (2, 2), value).save(file, "PNG")


@pytest.fixture
def iwildcam(tmp_path):
    root = tmp_path / "iwildcam_v2.0"
    for i, name in enumerate("abcdef"):
        image(root / "train" / f"{name}.jpg", 10 * i)
    (root / "metadata.csv").write_text(IWILDCAM)
    (root / "categories.csv").write_text(CATEGORIES)
    return root


@pytest.fixture
def camelyon(tmp_path):
    root = tmp_path / "camelyon17_v1.0"
    for i, line in enumerate(CAMELYON.splitlines()[1:]):
        _, patient, node, x, y, *_ = line.split(",")
        slide = f"patient_{patient}_node_{node}"
        image(root / "patches" / slide / f"patch_{slide}_x_{x}_y_{y}.png", 10 * i)
    (root / "metadata.csv").write_text(CAMELYON)
    return root


def params(root: Path, **over):
    over = {"ranks": ["label"], "target": "label", **over}
    return section(source="wilds", root=root, **over)


def run(root: Path, **over) -> Artifact:
    folder = root.parent / "samples"
    make(params(root, **over), folder)
    return Artifact.open(folder, "samples")


def test_iwildcam_goes_through_the_stage(iwildcam):
    extra = ["id_val", "id_test", "test"]
    artifact = run(iwildcam, ranks=["label", "location"], extra_splits=extra)
    frame = artifact.table("samples.parquet")
    assert frame["sample_id"].tolist() == [f"{name}.jpg" for name in "abcdef"]
    assert frame["split"].tolist() == ["id_test", "id_val", "test", "train", "train", "val"]
    assert frame["distribution"].tolist() == ["ID", "ID", "OOD", "ID", "ID", "OOD"]
    names = ["empty", "tayassu pecari", "crax, rubra"]
    assert list(frame["label"].cat.categories) == names
    assert frame["label"].tolist() == [names[i] for i in (0, 1, 2, 2, 0, 1)]
    assert frame["location"].tolist() == ["10", "10", "9", "10", "10", "2"]
    assert list(frame["location"].cat.categories) == ["2", "9", "10"]
    images = Images(artifact)
    assert [images.load(i, "L").getpixel((0, 0)) for i in range(6)] == [0, 10, 20, 30, 40, 50]


def test_camelyon17_goes_through_the_stage(camelyon):
    """Validation and test are whole hospitals, whatever the column split says of them."""
    artifact = run(camelyon, ranks=["label", "center"], extra_splits=["id_val", "test"])
    frame = artifact.table("samples.parquet")
    assert frame["sample_id"].iloc[0] == "patch_patient_004_node_4_x_3328_y_21792.png"
    assert frame["file"].iloc[0] == f"patches/patient_004_node_4/{frame['sample_id'].iloc[0]}"
    assert frame["split"].tolist() == ["train", "id_val", "val", "test", "id_val", "train"]
    assert frame["distribution"].tolist() == ["ID", "ID", "OOD", "OOD", "ID", "ID"]
    assert frame["label"].tolist() == ["tumor", "tumor", "normal", "tumor", "normal", "normal"]
    assert frame["center"].tolist() == ["0", "0", "1", "2", "3", "4"]
    images = Images(artifact)
    assert [images.load(i, "L").getpixel((0, 0)) for i in range(6)] == [0, 10, 20, 30, 40, 50]


def test_validation_where_the_network_was_trained(camelyon):
    frame = run(camelyon, val="id_val").table("samples.parquet")
    assert frame["split"].tolist() == ["train", "val", "val", "train"]
    assert set(frame["distribution"]) == {"ID"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2,test,9", "2,tset,9", r"row 3: split is 'tset', none of \['train', 'val', 'test', 'id_val', 'id_test'\]"),
        ("ac,2,10", "ac,3,10", "row 3: y is '3', none of the|row 3: y is '3', none of"),
        ("ac,2,10", "ac,99999,10", "row 3: y is '99999', none of"),
        ("ac,2,10", "ac,,10", "row 3: y is '', none of"),
        ("test,9,", "test,x,", "row 3: location_remapped is 'x'"),
        ("c.jpg", "../c.jpg", r"row 3: filename is '\.\./c\.jpg'"),
        ("c.jpg,c", "c.", r"row 3: filename is 'c\.'"),
        ("c.jpg,c", "", "row 3: filename is ''"),
        ("c.jpg", "b.jpg", r"row 3: 'b\.jpg' stands in an earlier row already"),
        (IWILDCAM[IWILDCAM.index("c.jpg") :], "", "row 3: filename is ''"),  # truncated
        (IWILDCAM[IWILDCAM.index("0,id_test") :], "", "has no rows"),
        (IWILDCAM, "", "is no CSV table"),
        ("c.jpg", "c\udcff.jpg", "is no CSV table in UTF-8"),
        (",y,", ",z,", r"lacks columns of WILDS' metadata; it has \['Unnamed: 0', 'split'"),
    ],
)
def test_a_bad_row_is_named(iwildcam, old, new, message):
    assert IWILDCAM.count(old) == 1
    (iwildcam / "metadata.csv").write_bytes(IWILDCAM.replace(old, new).encode(errors="surrogateescape"))
    with pytest.raises(GranularityError, match=rf"metadata\.csv: ({message})") as error:
        run(iwildcam)
    assert "\n" not in str(error.value)
    assert not (iwildcam.parent / "samples").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1,2,tayassu", "0,2,tayassu", "column y has '0' twice"),
        ("tayassu pecari", "empty", "column name has 'empty' twice"),
        ("tayassu pecari", "", "row 2: name is ''"),
        ("1,2,tayassu", "one,2,tayassu", "row 2: y is 'one'"),
        ("name", "title", r"needs the columns y and name; it has \['y', 'category_id', 'title'\]"),
    ],
)
def test_bad_names_of_animals(iwildcam, old, new, message):
    (iwildcam / "categories.csv").write_text(CATEGORIES.replace(old, new))
    with pytest.raises(GranularityError, match=rf"categories\.csv: {message}"):
        wilds.read(params(iwildcam))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("21792,1,0,0,0", "21792,-1,0,0,0", r"row 1: tumor is '-1', none of \['0', '1'\]"),  # the unlabelled part
        ("21792,1,0,0,0", "21792,1,0,5,0", r"row 1: center is '5', none of \['0', '1', '2', '3', '4'\]"),
        ("21792,1,0,0,0", "21792,1,0,0,2", r"row 1: split is '2', none of \['0', '1'\]"),
        ("21792,1,0,0,0", "21792,1,0", "row 1: center is ''"),
        ("3328,21792", "3328,-1", "row 1: y_coord is '-1'"),
        ("0,004,", "0,../4,", r"row 1: patient is '\.\./4'"),
        ("3200,22272", "3328,21792", "row 2: 'patch_patient_004_node_4_x_3328_y_21792.png' stands in an earlier row"),
    ],
)
def test_a_bad_patch_is_named(camelyon, old, new, message):
    assert CAMELYON.count(old) == 1
    (camelyon / "metadata.csv").write_text(CAMELYON.replace(old, new))
    with pytest.raises(GranularityError, match=rf"metadata\.csv: {message}"):
        wilds.read(params(camelyon))


def test_missing_files_are_named(iwildcam):
    (iwildcam / "train/c.jpg").unlink()
    with pytest.raises(GranularityError, match=r"train/c\.jpg: cannot be read"):
        run(iwildcam, extra_splits=["test"])
    (iwildcam / "categories.csv").unlink()
    with pytest.raises(GranularityError, match=r"categories\.csv: cannot be read \(No such file"):
        wilds.read(params(iwildcam))
    (iwildcam / "metadata.csv").unlink()
    with pytest.raises(GranularityError, match=r"metadata\.csv: cannot be read \(No such file"):
        wilds.read(params(iwildcam))


def test_a_split_without_images_is_named(iwildcam):
    (iwildcam / "metadata.csv").write_text("\n".join(IWILDCAM.splitlines()[:4]))
    with pytest.raises(
        GranularityError, match=r"name the split to train on; the source has \['id_test', 'id_val', 'te"
    ):
        run(iwildcam)


def test_the_publishers_val_may_be_an_extra_split_beside_another_val(iwildcam):
    table = run(iwildcam, val="id_val", extra_splits=["val", "test"]).table("samples.parquet")
    shifted = table[table["split"] == "val (published)"]
    assert len(shifted) and set(shifted["distribution"]) == {"OOD"}
    assert set(table.loc[table["split"] == "val", "distribution"]) == {"ID"}
