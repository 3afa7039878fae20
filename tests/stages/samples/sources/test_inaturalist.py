"""iNaturalist: annotation files of the four years, their ranks, and the published numbers of classes.

Layout: "Annotation Format" and "Data" in 2017/, 2018/, 2019/ and 2021/README.md of github.com/visipedia/inat_comp.
"""

import json
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.look.spaces import inaturalist_checks
from granularity.stages.samples.sources import inaturalist
from granularity.stages.samples.sources.inaturalist import distinct, pairs, ranks
from granularity.store.artifact import Artifact
from support.data_sets import FIELDS, SPECIES, annotations_of, categories_of
from support.data_sets import inaturalist as write
from support.sampling import make, section


@pytest.fixture
def root(tmp_path) -> Path:
    write(tmp_path / "inat", "train_mini", annotations_of("train_mini", categories_of(), 3))
    write(tmp_path / "inat", "val", annotations_of("val", categories_of(), 2, first=100))
    return tmp_path / "inat"


def run(root: Path, wanted: list[str], size="all", **options) -> Artifact:
    params = section(source="inaturalist", root=root, ranks=wanted, target=wanted[0], **options)
    make(params, root.parent / "samples", train_size=size)
    return Artifact.open(root.parent / "samples", "samples")


def read(root: Path, **options):
    return inaturalist.read(section(source="inaturalist", root=root, ranks=["species"], target="species", **options))


def test_images_have_the_ranks_of_their_category(root):
    artifact = run(root, ["supercategory", "genus", "genus_path", "species"], train="train_mini", val="val")
    table = artifact.table("samples.parquet")
    assert table["split"].value_counts().to_dict() == {"train": 12, "val": 8}
    assert table["sample_id"].is_unique
    assert table["file"].iloc[0] == "train_mini/00003_" + SPECIES["Reptiles"][0].replace(" ", "_") + "/11-2.jpg"
    for _, row in table.iterrows():  # the folder of an image says what it is
        folder = row["file"].split("/")[1].split("_")
        assert row["species"] == " ".join(folder[-2:])
        assert row["genus"] == folder[-2]
        assert row["genus_path"] == "/".join(folder[1:-1])
        assert row["species"] in [" ".join(line.split()[-2:]) for line in SPECIES[row["supercategory"]]]
    assert table["supercategory"].cat.categories.tolist() == ["Plants", "Birds", "Reptiles"]  # the publisher's order
    images = Images(artifact)
    for index in range(len(images)):
        key = int(table["file"].iloc[index].split("/")[-1].split("-")[0])
        assert abs(images.load(index, "L").getpixel((0, 0)) - key % 200) <= 2


def test_equal_names_are_told_apart_by_their_paths():
    table = ranks(categories_of())
    assert table["genus"].astype(str).tolist() == ["Prunella", "Prunella", "Sturnus", "Lacerta"]
    assert table["genus_path"].nunique() == 4
    assert table["class_path"].astype(str).iloc[1] == "Animalia/Chordata/Aves"
    counts = distinct(ranks(categories_of()))
    assert counts["genus"] == {"names": 3, "paths": 4}
    assert counts["specific_epithet"] == {"names": 3, "paths": 4}
    assert counts["phylum"] == counts["kingdom"] == {"names": 2, "paths": 2}
    assert counts["supercategory"] == {"names": 3, "paths": 3}
    assert not [rank for rank in counts if rank.endswith("_path")]


def test_published_numbers_of_classes_are_held_against_those_of_the_categories():
    """Nested fields with as many names as the paper has classes; then one more order."""
    counts = {"genus": 4884, "family": 1103, "order": 273, "class": 51, "phylum": 13, "kingdom": 3}
    made = []
    for i in range(10000):
        below, size = i * 6485 // 10000, 6485
        one = {"id": i, "name": f"species {i}", "specific_epithet": f"epithet {below}"}
        for field, count in counts.items():
            below, size = below * count // size, count
            one[field] = f"{field} {below}"
        made.append(one | {"supercategory": f"supercategory {i * 11 // 10000}"})
    verdicts = {one.expected: one.verdict for one in inaturalist_checks(distinct(ranks(made)), pairs(made))}
    assert verdicts == dict.fromkeys(("11", "13", "51", "273", "1103", "4884", "6485"), "holds")
    made[1] |= {"order": "another"}
    found = {one.expected: one for one in inaturalist_checks(distinct(ranks(made)), pairs(made))}
    assert (found["273"].found, found["273"].verdict) == ("274 names, 274 paths", "FAILS")


def test_2018_with_obfuscated_and_with_true_names(tmp_path):
    plain = [{key: one[key] for key in ("id", "name", "supercategory", *FIELDS[:-1])} for one in categories_of()]
    hidden = [one | {"name": str(one["id"])} | {field: f"X{one['id']}" for field in FIELDS[:-1]} for one in plain]
    root = tmp_path / "inat"
    for split, each, first in (("train2018", 3, 0), ("val2018", 1, 50)):
        write(root, split, annotations_of("train_val2018/Plantae", hidden, each, first))
    found = read(root, train="train2018", val="val2018").frame
    assert found["species"].cat.categories.tolist() == ["0", "1", "2", "3"] and "specific_epithet" not in found
    (root / "categories.json").write_text(json.dumps(plain))
    table = read(root, train="train2018", val="val2018", labels="categories.json").frame
    names = {str(one["id"]): one["name"] for one in plain}
    assert [names[file.split("/")[2]] for file in table["file"]] == table["species"].tolist()


def test_a_taxon_that_is_missing_is_no_class(root):
    """In 2018 some snails have no order: the publisher writes NA."""
    categories = categories_of()
    categories[0]["order"], categories[1]["order"], categories[2]["order"] = "NA", "", None
    table = ranks(categories)
    assert table["order"].isna().tolist() == [True, True, True, False]
    assert table["order_path"].astype(str).iloc[0] == "Plantae/Tracheophyta/Magnoliopsida/NA"
    assert table["order_path"].nunique() == 3
    assert distinct(table)["order"] == {"names": 1, "paths": 1}
    write(root, "train_mini", annotations_of("train_mini", categories, 1))
    (root / "val.json").unlink()
    with pytest.raises(GranularityError, match="no known order for 3 images, such as 'train_mini/"):
        run(root, ["order"], train="train_mini")


def broken(root: Path, change) -> None:
    data = json.loads((root / "train_mini.json").read_text())
    change(data)
    (root / "train_mini.json").write_text(json.dumps(data))


CHANGES = {
    "has no annotations": lambda data: data.pop("annotations"),
    "not one to one; see the image 3": lambda data: data["annotations"].pop(3),
    "not one to one; see the image 2": lambda data: data["annotations"][2].update(image_id=77),
    "a category_id is not among the categories": lambda data: data["annotations"][2].update(category_id=9),
    "not one to one; see the image 5": lambda data: data["images"][0].update(id=5),
    "not one to one; see the image 0": lambda data: data["annotations"].append(data["annotations"][0]),
    r"'/etc/passwd' is not a path below": lambda data: data["images"][1].update(file_name="/etc/passwd"),
    r"'a/\.\./\.\./b' is not a path": lambda data: data["images"][1].update(file_name="a/../../b"),
    r"lacks a whole number as its id \('category_id'\)": lambda data: data["annotations"][0].pop("category_id"),
    "lacks a whole number as its id": lambda data: data["images"][0].update(id="5"),
    "no lists of images and categories": lambda data: data.pop("categories"),
    "categories: is not a list": lambda data: data.update(categories=[]),
    "categories: an id appears twice": lambda data: data["categories"][2].update(id=1),
    "categories: id 2 has no name": lambda data: data["categories"][2].update(name=None),
    "categories: id 2 has .* a rank that is not text": lambda data: data["categories"][2].update(genus=4),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_wrong_annotation_file_is_refused(root, message):
    broken(root, CHANGES[message])
    with pytest.raises(GranularityError, match=rf"inat(/train_mini\.json)?: .*{message}") as caught:
        run(root, ["species"], train="train_mini")
    assert "\n" not in str(caught.value)
    assert not (root.parent / "samples").exists()


def test_splits_of_two_data_sets_are_refused(root):
    other = categories_of()
    other[0]["name"] = "Prunella grandiflora"
    write(root, "val", annotations_of("val", other, 1, first=100))
    with pytest.raises(GranularityError, match=r"val\.json: its categories differ from .*train_mini\.json"):
        read(root, train="train_mini")
