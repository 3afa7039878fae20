"""ImageNet-1k, Tiny ImageNet and the test sets of a shifted distribution.

Layouts: readme.txt of ILSVRC2012_devkit_t12 and torchvision/datasets/imagenet.py (meta.mat, ground truth); the data
page of Kaggle's imagenet-object-localization-challenge (LOC_val_solution.csv); tiny-imagenet-200.zip; the README files
of ImageNet-R, ImageNet-A and ImageNet-Sketch; github.com/modestyachts/ImageNetV2; ObjectNet 1.0's folder `mappings`,
as src/datasets/objectnet_metadata of github.com/mlfoundations/wise-ft has it.
"""

import json
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.sources import imagenet
from granularity.store.artifact import Artifact
from support import data_sets
from support.data_sets import devkit, fill, grey_of
from support.sampling import make, section

SYNSETS = ["n01440764", "n01443537", "n02123045"]
VAL = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 6)]
TRUTH = [SYNSETS[i] for i in (2, 0, 1, 0, 0)]
WNIDS = {1: "n02123045", 2: "n01440764", 3: "n01443537"}  # not in alphabetical order


@pytest.fixture
def root(tmp_path) -> Path:
    """ImageNet of three classes; no validation images yet."""
    fill(tmp_path / "imagenet", *(f"train/{synset}/{synset}_{i}.JPEG" for synset in SYNSETS for i in (9, 10)))
    return tmp_path / "imagenet"


@pytest.fixture
def flat(root) -> Path:
    fill(root, *(f"val/{name}" for name in VAL))
    return root


def params_of(root: Path, **options):
    return section(source="imagenet", root=root, ranks=["synset"], target="synset", **options)


def run(root: Path, **options):
    """The sample table; every image is read back and compared."""
    make(params_of(root, **options), root.parent / "samples")
    artifact = Artifact.open(root.parent / "samples", "samples")
    table, images = artifact.table("samples.parquet"), Images(artifact)
    for index, file in enumerate(table["file"]):
        inside = file if not file.startswith("..") else file.split("/", 2)[2]
        assert abs(images.load(index, "L").getpixel((1, 1)) - grey_of(inside)) <= 2
    return table, artifact.summary


def labels(table, split: str) -> dict[str, str]:
    rows = table[table["split"] == split]
    return {file.split("/")[-1]: synset for file, synset in zip(rows["file"], rows["synset"], strict=True)}


def refused(root: Path, message: str, **options) -> None:
    with pytest.raises(GranularityError, match=message) as caught:
        run(root, **options)
    assert "\n" not in str(caught.value) and not (root.parent / "samples").exists()


def test_folders_of_synsets(root):
    fill(root, *(f"val/{synset}/{name}" for synset, name in zip(TRUTH, VAL, strict=True)))
    table, _ = run(root)
    ids = ["train/n01440764/n01440764_10.JPEG", "train/n01440764/n01440764_9.JPEG", "train/n01443537/n01443537_10.JPEG"]
    assert table["sample_id"].iloc[:3].tolist() == ids
    assert table["split"].value_counts().to_dict() == {"train": 6, "val": 5}
    assert [file.split("/")[1] for file in table["file"]] == table["synset"].tolist()
    assert labels(table, "val") == dict(zip(VAL, TRUTH, strict=True))


@pytest.mark.parametrize("file", ["ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", "truth.txt"])
def test_the_ground_truth_of_the_development_kit(flat, file):
    devkit(flat / "ILSVRC2012_devkit_t12" / "data", WNIDS)
    (flat / file).write_text("1\n2\n3\n2\n2\n")
    assert labels(run(flat, labels=file)[0], "val") == dict(zip(VAL, TRUTH, strict=True))


LISTS = {
    "spaces": "\n".join(f"{name} {synset}" for name, synset in zip(VAL, TRUTH, strict=True)),
    "commas, another order": "\n".join(f"{name},{synset}" for name, synset in zip(VAL[::-1], TRUTH[::-1], strict=True)),
    "Kaggle": "ImageId,PredictionString\r\n"
    + "".join(f"{name[:-5]},{synset} 85 1 499 272 \r\n" for name, synset in zip(VAL, TRUTH, strict=True)),
    "synsets alone": "\n".join(TRUTH) + "\n\n",
}


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_labels(flat, kind):
    (flat / "labels.csv").write_text(LISTS[kind], newline="")
    assert labels(run(flat, labels="labels.csv")[0], "val") == dict(zip(VAL, TRUTH, strict=True))


WRONG = {
    "line 3: 'n0144' is not a label": "\n".join([*TRUTH[:2], "n0144", *TRUTH[3:]]),
    "has 1 labels, but there are 5 images, 'ILSVRC2012_val_00000002' being in only one": f"{VAL[0]} {TRUTH[0]}\n",
    "'ILSVRC2012_val_00000009' being in only one": LISTS["spaces"] + f"\nILSVRC2012_val_00000009 {SYNSETS[0]}",
    "has 6 labels, but there are 5 images": LISTS["spaces"] + f"\n{VAL[0]} {SYNSETS[0]}",
    "unknown class 'n09999999'": LISTS["spaces"].replace(SYNSETS[0], "n09999999"),
    "line 4: '1001' is not a label": "1\n2\n3\n1001\n1",
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_labels_are_refused(flat, message):
    devkit(flat, WNIDS)
    (flat / "labels.txt").write_text(WRONG[message])
    refused(flat, message, labels="labels.txt")


def test_odd_folders_are_refused(root, tmp_path):
    fill(root, "val/n01440764/1.JPEG", "val/n07747607/1.JPEG")
    refused(root, r"val/n07747607/1\.JPEG: unknown class 'n07747607': .*train has no folder")
    fill(root, "val/2.JPEG")
    refused(root, r"val/2\.JPEG: unknown class ''")
    (root / "train" / "n02123045.tar").write_bytes(b"")
    refused(root, r"n02123045\.tar: is still packed")
    (root / "train" / "n02123045.tar").unlink()
    (root / "train" / "n02123394").mkdir()
    refused(root, "train/n02123394: contains no images")
    refused(tmp_path / "nowhere", "train: cannot be read")


def test_tiny_imagenet(tmp_path):
    root = tmp_path / "tiny"
    fill(root, *(f"train/{synset}/images/{synset}_{i}.JPEG" for synset in SYNSETS for i in (9, 10)))
    fill(root, "val/images/val_0.JPEG", "val/images/val_1.JPEG", "val/images/val_10.JPEG", "test/images/test_0.JPEG")
    (root / "train/n01440764/n01440764_boxes.txt").write_text("n01440764_0.JPEG\t0\t10\t63\t58\n")
    truth = {"val_0.JPEG": SYNSETS[2], "val_1.JPEG": SYNSETS[0], "val_10.JPEG": SYNSETS[1]}
    lines = [f"{name}\t{synset}\t0\t32\t44\t62" for name, synset in truth.items()]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    table, _ = run(root)
    assert table["file"].iloc[0] == "train/n01440764/images/n01440764_10.JPEG"
    assert table["split"].value_counts().to_dict() == {"train": 6, "val": 3}
    assert labels(table, "val") == truth


def shifted(root: Path, **folders: Path):
    return run(root, shifted=folders, extra_splits=list(folders), validation=2)


def test_shifted_sets_in_folders_of_synsets(root):
    """ImageNet-R, which has fewer classes, and ImageNet-Sketch."""
    rendition, sketch = root.parent / "imagenet-r", root.parent / "sketch"
    fill(rendition, "n01443537/art_0.jpg", "n01443537/misc_1.jpg")
    fill(sketch, "n01443537/sketch_0.JPEG", "n02123045/sketch_3.JPEG")
    (rendition / "README.txt").write_text("ImageNet-R")
    table, summary = shifted(root, r=rendition, sketch=sketch)
    kinds = table.groupby("split", observed=True)["distribution"].agg(set).to_dict()
    assert kinds == {"train": {"ID"}, "val": {"ID"}, "r": {"OOD"}, "sketch": {"OOD"}}
    assert labels(table, "sketch") == {"sketch_0.JPEG": "n01443537", "sketch_3.JPEG": "n02123045"}
    first = table[table["split"] == "r"].iloc[0]
    assert (first["sample_id"], first["file"]) == ("r/n01443537/art_0.jpg", "../imagenet-r/n01443537/art_0.jpg")
    assert table["synset"].cat.categories.tolist() == SYNSETS and "shifted" not in summary


def test_a_shifted_set_may_be_the_validation_split_and_root_a_link(root):
    fill(root.parent / "r", "n01443537/art_0.jpg")
    table, _ = run(root, shifted={"r": root.parent / "r"}, val="r")
    assert table[table["split"] == "val"]["distribution"].tolist() == ["OOD"]
    linked = root.parent / "deep" / "linked"
    linked.parent.mkdir()
    linked.symlink_to(root)
    found = imagenet.read(params_of(linked, shifted={"r": root.parent / "r"}, extra_splits=["r"])).frame
    assert (linked / found["file"].iloc[-1]).samefile(root.parent / "r/n01443537/art_0.jpg")


def test_a_shifted_set_that_is_missing_unknown_or_not_asked_for(root):
    for file, message in {
        "n02999410/2.jpg": "unknown class 'n02999410'",
        "0/1.jpg": "place among 1000, but there are training images of 3",
    }.items():
        fill(root.parent / file[0], file)
        with pytest.raises(GranularityError, match=message):
            shifted(root, odd=root.parent / file[0])
    with pytest.raises(GranularityError, match="nowhere: there is no such folder"):
        shifted(root, r=root.parent / "nowhere")
    with pytest.raises(ValueError, match="shifted: 'val' is already the name of a split"):
        params_of(root, shifted={"val": root.parent / "r"}, val="val")
    with pytest.raises(ValueError, match="shifted: 'r' is not in extra_splits, so it would not be read"):
        params_of(root, shifted={"r": root.parent / "nowhere"})


@pytest.fixture(scope="module")
def thousand(tmp_path_factory) -> Path:
    data_sets.thousand(root := tmp_path_factory.mktemp("thousand") / "imagenet")
    return root


def read_shifted(root: Path, name: str, folder: Path):
    found = imagenet.read(params_of(root, shifted={name: folder}, extra_splits=[name]))
    return found.frame[found.frame["split"] == name].reset_index(drop=True), found


def test_imagenet_v2_counts_classes_in_alphabetical_order(thousand, tmp_path):
    fill(tmp_path / "v2", "0/a.jpeg", "2/b.jpeg", "10/c.jpeg", "999/d.jpeg")
    rows, _ = read_shifted(thousand, "v2", tmp_path / "v2")
    synset_of = dict(zip(rows["sample_id"], rows["synset"], strict=True))
    assert synset_of == {f"v2/{n}/{c}.jpeg": f"n{n:08d}" for n, c in zip((0, 2, 10, 999), "abcd", strict=True)}


def objectnet(folder: Path) -> Path:
    """Names of classes are lines of a file, whose order is not the alphabetical one of synsets."""
    mappings = folder / "mappings"
    mappings.mkdir(parents=True)
    names = [f"thing {line}" for line in range(1000)]
    names[3], names[4], names[5] = "barber chair", "folding chair", "backpack, back pack, rucksack"
    (mappings / "imagenet_to_label_2012_v2").write_text("\n".join(names) + "\n")
    places = {str(place): 999 - place for place in range(1000)}  # line 5 is place 994
    (mappings / "pytorch_to_imagenet_2012_id.json").write_text(json.dumps(places))
    labels = {"air_freshener": "Air freshener", "backpack": "Backpack", "chair": "Chair"}
    (mappings / "folder_to_objectnet_label.json").write_text(json.dumps(labels))
    classes = {"Backpack": names[5], "Chair": "barber chair; folding chair"}
    (mappings / "objectnet_to_imagenet_1k.json").write_text(json.dumps(classes))
    fill(folder, *(f"images/{one}.png" for one in ("air_freshener/1", "air_freshener/2", "backpack/3", "chair/4")))
    return folder


def test_objectnet_keeps_what_imagenet_has(thousand, tmp_path):
    folder = objectnet(tmp_path / "objectnet-1.0")
    rows, found = read_shifted(thousand, "objectnet", folder)
    assert rows["sample_id"].tolist() == ["objectnet/backpack/3.png", "objectnet/chair/4.png"]
    assert rows["synset"].tolist() == ["n00000994", "n00000995|n00000996"]
    assert (thousand / rows["file"].iloc[1]).is_file()
    left_out = {"classes": 1, "images": 2, "why": "in no class of ImageNet"}
    assert found.notes["shifted"]["objectnet"]["left_out"] == left_out
    mapping = folder / "mappings" / "objectnet_to_imagenet_1k.json"
    mapping.write_text('{"Chair": "crane"}')
    with pytest.raises(GranularityError, match="mappings: are not the mappings of ObjectNet"):
        read_shifted(thousand, "objectnet", folder)
