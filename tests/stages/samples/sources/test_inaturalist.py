"""iNaturalist: annotation files of the four years, their ranks, and the published numbers of classes.

Layout: "Annotation Format" and "Data" in 2017/, 2018/, 2019/ and 2021/README.md of github.com/visipedia/inat_comp.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.look.label_checks import inaturalist_checks
from granularity.stages.samples.formats.inaturalist_taxonomy import distinct, pairs, ranks
from granularity.stages.samples.sources import inaturalist
from granularity.store.artifacts import Artifact
from support.sampling import make, section

FIELDS = ("kingdom", "phylum", "class", "order", "family", "genus", "specific_epithet")
# Real species. Two genera are called Prunella and two epithets vulgaris; Chordata holds two supercategories.
SPECIES = {
    "Plants": ["Plantae Tracheophyta Magnoliopsida Lamiales Lamiaceae Prunella vulgaris"],
    "Birds": [
        "Animalia Chordata Aves Passeriformes Prunellidae Prunella modularis",
        "Animalia Chordata Aves Passeriformes Sturnidae Sturnus vulgaris",
    ],
    "Reptiles": ["Animalia Chordata Reptilia Squamata Lacertidae Lacerta agilis"],
}


def categories_of(species: dict[str, list[str]] = SPECIES) -> list[dict]:
    """As in 2021."""
    made = []
    for supercategory, lines in species.items():
        for line in lines:
            values = dict(zip(FIELDS, line.split(), strict=True))
            number = len(made)
            made.append(
                {
                    "id": number,
                    "name": f"{values['genus']} {values['specific_epithet']}",
                    "common_name": f"Common {number}",
                    "supercategory": supercategory,
                    **values,
                    "image_dir_name": f"{number:05d}_{line.replace(' ', '_')}",
                }
            )
    return made


def annotations_of(split: str, categories: list[dict], each: int, first: int = 0) -> dict:
    """An annotation file; the images are not in the order of their ids, nor the annotations in that of the images."""
    images, annotations = [], []
    for category in categories:
        for number in range(each):
            key = first + len(images)
            folder = category.get("image_dir_name", category["id"])
            images.append(
                {
                    "id": key,
                    "width": 4,
                    "height": 4,
                    "file_name": f"{split}/{folder}/{key}-{number}.jpg",
                    "license": 0,
                    "rights_holder": "Ana\u00efs",
                    "date": "2018-09-18 10:52:00+00:00",
                    "latitude": None,
                    "longitude": float("nan"),
                    "location_uncertainty": None,
                }
            )
            annotations.append({"id": key, "image_id": key, "category_id": category["id"]})
    return {
        "info": {"year": 2021, "version": "1", "description": "", "contributor": "", "url": "", "date_created": ""},
        "images": images[::-1],
        "categories": categories,
        "annotations": annotations,
        "licenses": [{"id": 0, "name": "CC0", "url": ""}],
    }


def write(root: Path, split: str, data: dict) -> None:
    """The annotation file and its images, each of a grey of its own."""
    root.mkdir(exist_ok=True)
    (root / f"{split}.json").write_text(json.dumps(data))
    for image in data["images"]:
        file = root / image["file_name"]
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), image["id"] % 200).save(file)


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


def test_only_files_that_are_asked_for_are_read(root):
    (root / "val.json").write_text("broken")
    with pytest.raises(GranularityError, match=r"val\.json: is truncated"):
        read(root, train="train_mini")
    write(root, "held", annotations_of("held", categories_of(), 1, first=200))
    found = read(root, train="train_mini", val="held").frame
    assert found["split"].unique().tolist() == ["train_mini", "held"]


def test_splits_by_default_and_extra_splits(root):
    write(root, "train", annotations_of("train", categories_of(), 1, first=300))
    table = run(root, ["species"], extra_splits=["train_mini"]).table("samples.parquet")
    assert table["split"].value_counts().to_dict() == {"train": 4, "val": 8, "train_mini": 12}
    assert table["split"].iloc[0] == "train"


def test_without_val_images_are_held_out(root):
    (root / "val.json").unlink()
    table = run(root, ["species"], train="train_mini", validation=4).table("samples.parquet")
    assert table["split"].value_counts().to_dict() == {"train": 8, "val": 4}
    assert table[table["split"] == "val"]["species"].is_unique


def test_equal_names_are_told_apart_by_their_paths():
    table = ranks(categories_of())
    assert table["genus"].astype(str).tolist() == ["Prunella", "Prunella", "Sturnus", "Lacerta"]
    assert table["genus_path"].nunique() == 4
    assert table["class_path"].astype(str).iloc[1] == "Animalia/Chordata/Aves"
    counts = distinct(categories_of())
    assert counts["genus"] == {"names": 3, "paths": 4}
    assert counts["specific_epithet"] == {"names": 3, "paths": 4}
    assert counts["phylum"] == counts["kingdom"] == {"names": 2, "paths": 2}
    assert counts["supercategory"] == {"names": 3, "paths": 3}
    assert not [rank for rank in counts if rank.endswith("_path")]


def test_the_manifest_has_the_numbers_of_classes(root):
    summary = run(root, ["species"], train="train_mini").summary
    assert summary["distinct"] == distinct(categories_of())


def test_phylum_does_not_refine_supercategory(root):
    table = run(root, ["supercategory", "phylum"], train="train_mini").table("taxonomy.parquet")
    assert (table["phylum"] == "Chordata").sum() == 2


# ---------------------------------------------------------------- the published numbers of classes


@pytest.fixture(scope="module")
def as_published() -> list[dict]:
    """Nested fields with as many names as the paper has classes."""
    counts = {"genus": 4884, "family": 1103, "order": 273, "class": 51, "phylum": 13, "kingdom": 3}
    made = []
    for i in range(10000):
        below, size = i * 6485 // 10000, 6485
        one = {"id": i, "name": f"species {i}", "specific_epithet": f"epithet {below}"}
        for field, count in counts.items():
            below, size = below * count // size, count
            one[field] = f"{field} {below}"
        made.append(one | {"supercategory": f"supercategory {i * 11 // 10000}"})
    return made


def l4(categories: list[dict]) -> dict[str, tuple[str, str]]:
    checks = inaturalist_checks(distinct(categories), pairs(categories))
    return {check.expected: (check.found, check.verdict) for check in checks}


def test_published_numbers_that_agree(as_published):
    found = l4(as_published)
    assert list(found) == ["11", "13", "51", "273", "1103", "4884", "6485"]
    assert {verdict for _, verdict in found.values()} == {"holds"}
    assert found["4884"][0] == "4884 names, 4884 paths"
    assert found["6485"][0] == "names of specific_epithet, paths of specific_epithet"


def test_published_numbers_that_do_not_agree(as_published):
    fewer = [one | {"specific_epithet": f"epithet {one['id'] % 6000}"} for one in as_published]
    fewer[0] = fewer[0] | {"genus": fewer[-1]["genus"]}  # genus 0 has another species; this one is now of two families
    fewer[1] = fewer[1] | {"order": "another"}
    found = l4(fewer)
    assert found["6485"] == ("of no field or pair", "FAILS")
    assert found["51"][1] == "holds"
    assert found["4884"] == ("4884 names, 4886 paths", "holds")
    assert found["273"] == ("274 names, 274 paths", "FAILS")


def test_a_number_may_be_that_of_two_fields_together():
    numbers = [(i % 97, i % 89) for i in range(6485)]  # all different
    together = [{"id": i, "name": f"{a}", "genus": f"{b}"} for i, (a, b) in enumerate(numbers)]
    assert l4(together)["6485"] == ("name + genus", "holds")


# ---------------------------------------------------------------- other years


def test_2018_with_obfuscated_and_with_true_names(tmp_path):
    plain = [{key: one[key] for key in ("id", "name", "supercategory", *FIELDS[:-1])} for one in categories_of()]
    hidden = [one | {"name": str(one["id"])} | {field: f"X{one['id']}" for field in FIELDS[:-1]} for one in plain]
    root = tmp_path / "inat"
    for split, each, first in (("train2018", 3, 0), ("val2018", 1, 50)):
        data = annotations_of("train_val2018/Plantae", hidden, each, first)
        write(root, split, data)
    found = read(root, train="train2018", val="val2018").frame
    assert found["species"].cat.categories.tolist() == ["0", "1", "2", "3"]
    assert "specific_epithet" not in found
    (root / "categories.json").write_text(json.dumps(plain))
    table = run(root, ["supercategory", "species"], train="train2018", val="val2018", labels="categories.json")
    table = table.table("samples.parquet")
    names = {str(one["id"]): one["name"] for one in plain}
    assert [names[file.split("/")[2]] for file in table["file"]] == table["species"].tolist()
    assert table["split"].value_counts().to_dict() == {"train": 12, "val": 4}


def test_2017_and_2019_offer_the_fields_that_they_have(tmp_path):
    for year, fields in (("2017", ("id", "name", "supercategory")), ("2019", ("id", "name", *FIELDS[:-1]))):
        categories = [{key: one[key] for key in fields} for one in categories_of()]
        write(tmp_path / "inat", f"train{year}", annotations_of(f"train_val{year}", categories, 2))
    old = read(tmp_path / "inat", train="train2017")
    assert old.ranks == ["supercategory", "species"]
    new = read(tmp_path / "inat", train="train2019")
    assert "supercategory" not in new.ranks
    assert {"phylum", "genus", "genus_path", "species"} <= set(new.ranks)


def test_a_taxon_that_is_missing_is_no_class(root):
    """In 2018 some snails have no order: the publisher writes NA."""
    categories = categories_of()
    categories[0]["order"], categories[1]["order"], categories[2]["order"] = "NA", "", None
    table = ranks(categories)
    assert table["order"].isna().tolist() == [True, True, True, False]
    assert table["order_path"].astype(str).iloc[0] == "Plantae/Tracheophyta/Magnoliopsida/NA"
    assert table["order_path"].nunique() == 3
    assert distinct(categories)["order"] == {"names": 1, "paths": 1}
    write(root, "train_mini", annotations_of("train_mini", categories, 1))
    (root / "val.json").unlink()
    with pytest.raises(GranularityError, match="3 images have no order, such as 'train_mini/"):
        run(root, ["order"], train="train_mini")


# ---------------------------------------------------------------- what is refused


def broken(root: Path, change) -> None:
    data = json.loads((root / "train_mini.json").read_text())
    change(data)
    (root / "train_mini.json").write_text(json.dumps(data))


CHANGES = {
    "has no annotations": lambda data: data.pop("annotations"),
    r"image 'train_mini/.*' has no annotation": lambda data: data["annotations"].pop(3),
    r"annotations: image_id 77 is not among": lambda data: data["annotations"][2].update(image_id=77),
    r"annotations: image_id -1 is not among": lambda data: data["annotations"][2].update(image_id=-1),
    r"category_id 9 is not among the categories": lambda data: data["annotations"][2].update(category_id=9),
    r"images: two have the id 5": lambda data: data["images"][0].update(id=5),
    r"has 2 annotations, but needs one": lambda data: data["annotations"].append(data["annotations"][0]),
    r"file_name '/etc/passwd' is no path below": lambda data: data["images"][1].update(file_name="/etc/passwd"),
    r"file_name 'a/\.\./\.\./b' is no path": lambda data: data["images"][1].update(file_name="a/../../b"),
    r"file_name 7 is no path below": lambda data: data["images"][1].update(file_name=7),
    "half a surrogate pair": lambda data: data["images"][1].update(file_name="\ud800.jpg"),
    r"lacks a whole number as its id \('image_id'|no annotation": lambda data: data["annotations"][0].pop("image_id"),
    r"lacks a whole number as its id \('category_id'\)": lambda data: data["annotations"][0].pop("category_id"),
    "lacks a whole number as its id": lambda data: data["images"][0].update(id="5"),
    "lacks a whole number as its id.*too": lambda data: data["images"][0].update(id=2**70),
    "lists no images": lambda data: data.update(images=[], annotations=[]),
    "no lists of images and categories": lambda data: data.pop("categories"),
    "categories: is no list": lambda data: data.update(categories=[]),
    "categories: the id 1 is given twice": lambda data: data["categories"][2].update(id=1),
    "categories: id 2 has no name": lambda data: data["categories"][2].update(name=None),
    "categories: id 2 has .* a rank that is no text": lambda data: data["categories"][2].update(genus=4),
    "categories: id 2 has half": lambda data: data["categories"][2].update(genus="\udc00"),
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_wrong_annotation_file_is_refused(root, message):
    broken(root, CHANGES[message])
    with pytest.raises(GranularityError, match=rf"train_mini\.json: .*{message}") as caught:
        run(root, ["species"], train="train_mini")
    assert "\n" not in str(caught.value)
    assert not (root.parent / "samples").exists()


@pytest.mark.parametrize("keep", [0, 1, 300, 2000])
def test_a_truncated_file_is_refused(root, keep):
    file = root / "train_mini.json"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(GranularityError, match=r"train_mini\.json: is truncated or no JSON file"):
        read(root, train="train_mini")


@pytest.mark.parametrize("text", ["[]", "3", "{}", "[" * 100_000, "\xff"])
def test_another_file_is_refused(root, text):
    (root / "train_mini.json").write_text(text, encoding="latin-1")
    with pytest.raises(GranularityError, match=r"train_mini\.json: (has no lists|is truncated or no JSON|is no text)"):
        read(root, train="train_mini")


def test_a_missing_file_says_which_there_are(root):
    with pytest.raises(GranularityError, match=r"train\.json: is missing; .* has \['train_mini', 'val'\]"):
        read(root)


def test_splits_of_two_data_sets_are_refused(root):
    other = categories_of()
    other[0]["name"] = "Prunella grandiflora"
    write(root, "val", annotations_of("val", other, 1, first=100))
    with pytest.raises(GranularityError, match=r"val\.json: its categories differ from those of .*train_mini\.json"):
        read(root, train="train_mini")


def test_a_missing_image_is_named(root):
    gone = next((root / "val").glob("*/*.jpg"))
    gone.unlink()
    with pytest.raises(GranularityError, match=rf"{gone.name}: cannot be read"):
        run(root, ["species"], train="train_mini")
