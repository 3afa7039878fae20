"""ImageNet-1k, Tiny ImageNet and the test sets of a shifted distribution.

Layouts: readme.txt of ILSVRC2012_devkit_t12 and torchvision/datasets/imagenet.py (meta.mat, ground truth); the data
page of Kaggle's imagenet-object-localization-challenge (LOC_val_solution.csv); tiny-imagenet-200.zip; the README files
of ImageNet-R, ImageNet-A and ImageNet-Sketch; github.com/modestyachts/ImageNetV2; ObjectNet 1.0's folder `mappings`,
as src/datasets/objectnet_metadata of github.com/mlfoundations/wise-ft has it.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.formats import imagenet_labels, imagenet_shifted
from granularity.stages.samples.sources import imagenet
from granularity.store.artifacts import Artifact
from support.sampling import make, section

SYNSETS = ["n01440764", "n01443537", "n02123045"]


def save(file: Path, grey: int = 7) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (3, 3), grey).save(file, "JPEG")


def grey_of(file: str) -> int:
    """Each image gets a grey of its own, so that reading back another one shows."""
    return sum(map(ord, file)) * 7 % 200


def fill(root: Path, *files: str) -> None:
    for file in files:
        save(root / file, grey_of(file))


@pytest.fixture
def root(tmp_path) -> Path:
    """ImageNet of three classes; no validation images yet."""
    root = tmp_path / "imagenet"
    fill(root, *(f"train/{synset}/{synset}_{number}.JPEG" for synset in SYNSETS for number in (9, 10)))
    (root / "train" / ".cache").mkdir()
    return root


VAL = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 6)]
TRUTH = [SYNSETS[i] for i in (2, 0, 1, 0, 0)]


@pytest.fixture
def flat(root) -> Path:
    fill(root, *(f"val/{name}" for name in VAL))
    return root


def params_of(root: Path, **options):
    return section(source="imagenet", root=root, ranks=["synset"], target="synset", **options)


def run(root: Path, threads: int = 1, **options):
    """The sample table; every image is read back and compared."""
    folder = root.parent / "samples"
    make(params_of(root, **options), folder, threads=threads)
    artifact = Artifact.open(folder, "samples")
    table, images = artifact.table("samples.parquet"), Images(artifact)
    for index, file in enumerate(table["file"]):
        inside = file if not file.startswith("..") else file.split("/", 2)[2]
        assert abs(images.load(index, "L").getpixel((1, 1)) - grey_of(inside)) <= 2
    return table, artifact.summary


def labels(table, split: str) -> dict[str, str]:
    rows = table[table["split"] == split]
    return {file.split("/")[-1]: synset for file, synset in zip(rows["file"], rows["synset"], strict=True)}


# ---------------------------------------------------------------- train and val


@pytest.mark.parametrize("threads", [1, 3])
def test_folders_of_synsets(root, threads):
    fill(root, *(f"val/{synset}/{name}" for synset, name in zip(TRUTH, VAL, strict=True)))
    table, _ = run(root, threads)
    assert table["sample_id"].iloc[:3].tolist() == [
        "train/n01440764/n01440764_10.JPEG",
        "train/n01440764/n01440764_9.JPEG",
        "train/n01443537/n01443537_10.JPEG",
    ]
    assert table["split"].value_counts().to_dict() == {"train": 6, "val": 5}
    assert [file.split("/")[1] for file in table["file"]] == table["synset"].tolist()
    assert "distribution" not in table
    assert labels(table, "val") == dict(zip(VAL, TRUTH, strict=True))


def devkit(folder: Path, ids=(1, 2, 3), wnids=("n02123045", "n01440764", "n01443537")) -> None:
    """meta.mat: a struct array, one per synset, of which the last is no class but above the others."""
    fields = ["ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height"]
    synsets = np.empty((len(ids) + 1, 1), dtype=[(field, object) for field in fields])
    for row, (key, wnid) in enumerate(zip((*ids, 1001), (*wnids, "n00001740"), strict=True)):
        synsets[row, 0] = (float(key), wnid, "tench, Tinca tinca", "a fish", 0.0, np.empty((0, 0)), 0.0)
    folder.mkdir(parents=True, exist_ok=True)
    savemat(folder / "meta.mat", {"synsets": synsets})


GROUND_TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"


@pytest.mark.parametrize("file", [GROUND_TRUTH, "truth.txt"])
def test_the_ground_truth_of_the_development_kit(flat, file):
    devkit(flat / "ILSVRC2012_devkit_t12" / "data")
    (flat / file).write_text("1\n2\n3\n2\n2\n")  # not ids in alphabetical order: n02123045 is 1
    assert labels(run(flat, labels=file)[0], "val") == dict(zip(VAL, TRUTH, strict=True))


def test_numbers_without_their_meaning_are_refused(flat):
    (flat / "truth.txt").write_text("1\n2\n3\n2\n2\n")
    with pytest.raises(GranularityError, match=r"truth\.txt: holds numbers, which meta\.mat explains"):
        run(flat, labels="truth.txt")


@pytest.mark.parametrize(
    "data", [b"", b"MATLAB", b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"\x0e\0\0\0\xff\xff\0\0"]
)
def test_a_broken_meta_mat_is_refused(flat, data):
    (flat / "truth.txt").write_text("1\n2\n3\n2\n2\n")
    (flat / "meta.mat").write_bytes(data)
    with pytest.raises(GranularityError, match=r"meta\.mat: is no intact meta\.mat"):
        run(flat, labels="truth.txt")


def test_a_truncated_meta_mat_is_refused(flat):
    (flat / "truth.txt").write_text("1\n2\n3\n2\n2\n")
    devkit(flat)
    whole = (flat / "meta.mat").read_bytes()
    for keep in range(100, len(whole), 500):
        (flat / "meta.mat").write_bytes(whole[:keep])
        with pytest.raises(GranularityError, match=r"(meta\.mat|truth\.txt): "):
            imagenet.read(params_of(flat, labels="truth.txt"))


def test_a_meta_mat_that_crashes_its_reader_is_refused(flat, monkeypatch):
    """Some broken files are a segmentation fault in SciPy."""
    (flat / "truth.txt").write_text("1\n2\n3\n2\n2\n")
    devkit(flat)
    monkeypatch.setattr(imagenet_labels, "_meta", _crash)
    with pytest.raises(GranularityError, match=r"meta\.mat: is no intact meta\.mat"):
        imagenet.read(params_of(flat, labels="truth.txt"))


def _crash(file: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_meta_mat_of_other_names_is_refused(flat):
    (flat / "truth.txt").write_text("1\n2\n3\n2\n2\n")
    devkit(flat, wnids=("cat", "tench", "goldfish"))
    with pytest.raises(GranularityError, match=r"meta\.mat: ILSVRC2012_ID 1 has the WNID 'cat', which is none"):
        run(flat, labels="truth.txt")


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
    "has 4 labels, but there are 5": "\n".join(TRUTH[:4]),
    "line 3: 'n0144' is no label": "\n".join([*TRUTH[:2], "n0144", *TRUTH[3:]]),
    "line 2: 'ILSVRC2012_val_00000002.JPEG' is no label": f"{VAL[0]} {TRUTH[0]}\n{VAL[1]}\n",
    "has no line for 'ILSVRC2012_val_00000002'": f"{VAL[0]} {TRUTH[0]}\n",
    "has 'ILSVRC2012_val_00000009', which is not": LISTS["spaces"] + f"\nILSVRC2012_val_00000009 {SYNSETS[0]}",
    "line 6: has image 'ILSVRC2012_val_00000001' a second": LISTS["spaces"] + f"\n{VAL[0]} {SYNSETS[0]}",
    "labels.txt: unknown class 'n09999999'": LISTS["spaces"].replace(SYNSETS[0], "n09999999"),
    "line 4: 1001 is no ILSVRC2012_ID of a class": "1\n2\n3\n1001\n1",
    "line 1: 0 is no ILSVRC2012_ID": "0\n2\n3\n1\n1",
    "line 5: 4 is no ILSVRC2012_ID": "1\n2\n3\n1\n4",
    "line 2: 'n01440764' is no label": "1\nn01440764\n3\n1\n1",
    "has no line for": "",
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_labels_are_refused(flat, message):
    devkit(flat)
    (flat / "labels.txt").write_text(WRONG[message])
    with pytest.raises(GranularityError, match=message) as caught:
        run(flat, labels="labels.txt")
    assert "labels.txt" in str(caught.value) and "\n" not in str(caught.value)
    assert not (flat.parent / "samples").exists()


def test_labels_that_are_missing_or_no_text_are_refused(flat):
    with pytest.raises(GranularityError, match=r"samples\.labels: .*val has no folders of classes; name the file"):
        run(flat)
    with pytest.raises(GranularityError, match=r"samples\.labels: .*gone\.txt: cannot be read"):
        run(flat, labels="gone.txt")
    (flat / "labels.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GranularityError, match=r"labels\.txt: is no text in UTF-8"):
        run(flat, labels="labels.txt")


def test_a_class_that_has_no_training_images_is_refused(root):
    fill(root, "val/n01440764/1.JPEG", "val/n07747607/1.JPEG")
    with pytest.raises(GranularityError, match=r"val/n07747607: unknown class 'n07747607': .*train has no folder"):
        run(root)


def test_odd_folders_are_refused(root):
    fill(root, "val/n01440764/1.JPEG", "val/2.JPEG")
    with pytest.raises(GranularityError, match=r"val: holds both folders and images, such as n01440764 and 2\.JPEG"):
        run(root)
    (root / "train" / "n02123045.tar").write_bytes(b"")
    with pytest.raises(GranularityError, match=r"n02123045\.tar: is still packed"):
        run(root)
    (root / "train" / "n02123045.tar").unlink()
    (root / "train" / "n0212394").mkdir()
    with pytest.raises(GranularityError, match=r"train/n0212394: is no synset"):
        run(root)
    (root / "train" / "n0212394").rename(root / "train" / "n02123394")
    with pytest.raises(GranularityError, match=r"train/n02123394: holds no images"):
        run(root)


def test_empty_and_missing_folders_are_refused(root, tmp_path):
    (root / "val").mkdir()
    with pytest.raises(GranularityError, match="val: holds no images"):
        run(root)
    (tmp_path / "empty" / "train").mkdir(parents=True)
    with pytest.raises(GranularityError, match="train: holds no folders called by synsets"):
        run(tmp_path / "empty")
    with pytest.raises(GranularityError, match="train: cannot be read"):
        run(tmp_path / "nowhere")


def test_a_truncated_image_is_found_when_it_is_decoded(root):
    file = root / "train/n01440764/n01440764_10.JPEG"
    file.write_bytes(file.read_bytes()[:150])
    make(params_of(root, validation=1), root.parent / "samples")
    artifact = Artifact.open(root.parent / "samples")
    index = artifact.table("samples.parquet")["file"].tolist().index("train/n01440764/n01440764_10.JPEG")
    with pytest.raises(GranularityError, match=r"n01440764_10\.JPEG: cannot be decoded"):
        Images(artifact).load(index)


def test_without_val_images_are_held_out(root):
    table, summary = run(root, validation=3)
    assert table["split"].value_counts().to_dict() == {"train": 3, "val": 3}
    assert summary["validation"] == "3 images held out, stratified by synset"


def test_tiny_imagenet(root):
    fill(root, "val/images/val_0.JPEG", "val/images/val_1.JPEG", "val/images/val_10.JPEG", "test/images/test_0.JPEG")
    for synset in SYNSETS:  # as in the archive: train/n01443537/images/ and train/n01443537/n01443537_boxes.txt
        (root / "train" / synset).rename(root / "moved")
        (root / "moved").rename(root / "moving")
        (root / "train" / synset).mkdir()
        (root / "moving").rename(root / "train" / synset / "images")
        (root / "train" / synset / f"{synset}_boxes.txt").write_text(f"{synset}_0.JPEG\t0\t10\t63\t58\n")
        for file in (root / "train" / synset / "images").iterdir():
            save(file, grey_of(f"train/{synset}/images/{file.name}"))
    truth = {"val_0.JPEG": SYNSETS[2], "val_1.JPEG": SYNSETS[0], "val_10.JPEG": SYNSETS[1]}
    lines = [f"{name}\t{synset}\t0\t32\t44\t62" for name, synset in truth.items()]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    table, _ = run(root)
    assert table["file"].iloc[0] == "train/n01440764/images/n01440764_10.JPEG"
    assert table["split"].value_counts().to_dict() == {"train": 6, "val": 3}
    assert labels(table, "val") == truth
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines[:2]) + "\n")
    with pytest.raises(GranularityError, match=r"val_annotations\.txt: has no line for 'val_10'"):
        run(root)


# ---------------------------------------------------------------- shifted test sets


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
    assert labels(table, "r") == {"art_0.jpg": "n01443537", "misc_1.jpg": "n01443537"}
    assert labels(table, "sketch") == {"sketch_0.JPEG": "n01443537", "sketch_3.JPEG": "n02123045"}
    assert table[table["split"] == "r"]["sample_id"].iloc[0] == "r/n01443537/art_0.jpg"
    assert table[table["split"] == "r"]["file"].iloc[0] == "../imagenet-r/n01443537/art_0.jpg"
    assert table["synset"].cat.categories.tolist() == SYNSETS
    assert "shifted" not in summary


def test_a_shifted_set_is_found_from_a_root_that_is_a_symbolic_link(root):
    art = root.parent / "r" / "n01443537" / "art_0.jpg"
    save(art)
    (root.parent / "deep" / "deeper").mkdir(parents=True)
    linked = root.parent / "deep" / "deeper" / "linked"
    linked.symlink_to(root)
    found = imagenet.read(params_of(linked, shifted={"r": root.parent / "r"}, extra_splits=["r"])).frame
    assert (linked / found["file"].iloc[-1]).samefile(art)


def test_a_shifted_set_that_nobody_asks_for_is_a_mistake(root):
    with pytest.raises(ValueError, match="shifted: 'r' is not in extra_splits, so nothing would be read of it"):
        run(root, shifted={"r": root.parent / "nowhere"}, validation=2)


def test_a_shifted_set_may_be_the_validation_split(root):
    fill(root.parent / "r", "n01443537/art_0.jpg")
    table, _ = run(root, shifted={"r": root.parent / "r"}, val="r")
    assert table[table["split"] == "val"]["distribution"].tolist() == ["OOD"]


def test_a_shifted_set_with_classes_that_training_lacks_is_refused(root):
    fill(root.parent / "a", "n01443537/1.jpg", "n02999410/2.jpg")
    with pytest.raises(GranularityError, match=r"a/n02999410: unknown class 'n02999410'"):
        shifted(root, a=root.parent / "a")


@pytest.mark.parametrize("files", [["chain/1.jpg"], ["n01443537/1.jpg", "extra/2.jpg"], ["0/1.jpg", "1000/1.jpg"], []])
def test_a_shifted_set_of_unknown_layout_is_refused(root, files):
    (root.parent / "odd").mkdir()
    fill(root.parent / "odd", *files)
    with pytest.raises(GranularityError, match=r"samples\.shifted: odd: .* is of no layout known here"):
        shifted(root, odd=root.parent / "odd")


def test_a_shifted_set_that_is_missing_empty_or_called_like_a_split_is_refused(root):
    with pytest.raises(GranularityError, match="nowhere: cannot be read"):
        shifted(root, r=root.parent / "nowhere")
    (root.parent / "r" / "n01443537").mkdir(parents=True)
    with pytest.raises(GranularityError, match="n01443537: holds no images"):
        shifted(root, r=root.parent / "r")
    with pytest.raises(GranularityError, match=r"samples\.shifted: val: is the name of a split already"):
        run(root, shifted={"val": root.parent / "r"}, val="val")


@pytest.fixture(scope="module")
def thousand(tmp_path_factory) -> Path:
    """ImageNet-1k of one training image a class, all the same file; n00000000 to n00000999 in alphabetical order."""
    root = tmp_path_factory.mktemp("thousand") / "imagenet"
    save(root / "image.JPEG")
    for number in range(1000):
        folder = root / "train" / f"n{number:08d}"
        folder.mkdir(parents=True)
        (folder / "image.JPEG").hardlink_to(root / "image.JPEG")
    return root


def read_shifted(root: Path, name: str, folder: Path):
    found = imagenet.read(params_of(root, shifted={name: folder}, extra_splits=[name]))
    return found.frame[found.frame["split"] == name], found


def test_imagenet_v2_counts_classes_in_alphabetical_order(thousand, tmp_path):
    folder = tmp_path / "imagenetv2-matched-frequency-format-val"
    fill(folder, "0/a.jpeg", "2/b.jpeg", "10/c.jpeg", "999/d.jpeg")
    rows, found = read_shifted(thousand, "v2", folder)
    assert rows["synset"].tolist() == ["n00000000", "n00000002", "n00000010", "n00000999"]
    assert (thousand / rows["file"].iloc[2]).resolve() == (folder / "10" / "c.jpeg").resolve()
    assert (found.frame["distribution"] == "OOD").sum() == 4


def test_imagenet_v2_needs_all_thousand_classes(root):
    fill(root.parent / "v2", "0/a.jpeg", "1/b.jpeg")
    with pytest.raises(GranularityError, match=r"place among the 1000 of ImageNet-1k, but there .* of 3"):
        shifted(root, v2=root.parent / "v2")


def objectnet(folder: Path) -> Path:
    """Names of classes are lines of a file, whose order is not the alphabetical one of synsets."""
    mappings = folder / "mappings"
    mappings.mkdir(parents=True)
    names = [f"thing {line}" for line in range(1000)]
    names[3], names[4] = "barber chair", "folding chair"
    names[700], names[701] = "crane", "crane"  # the bird and the machine have one name
    names[5] = "backpack, back pack, knapsack, packsack, rucksack, haversack"
    (mappings / "imagenet_to_label_2012_v2").write_text("\n".join(names) + "\n")
    places = {str(place): 999 - place for place in range(1000)}  # line 5 is place 994
    (mappings / "pytorch_to_imagenet_2012_id.json").write_text(json.dumps(places))
    labels = {"air_freshener": "Air freshener", "backpack": "Backpack", "chair": "Chair"}
    (mappings / "folder_to_objectnet_label.json").write_text(json.dumps(labels))
    classes = {"Backpack": names[5], "Chair": "barber chair; folding chair"}
    (mappings / "objectnet_to_imagenet_1k.json").write_text(json.dumps(classes))
    fill(folder, "images/air_freshener/1.png", "images/air_freshener/2.png", "images/backpack/3.png")
    fill(folder, "images/chair/4.png")
    (folder / "README").write_text("ObjectNet")
    return folder


def test_objectnet_keeps_what_imagenet_has(thousand, tmp_path):
    rows, found = read_shifted(thousand, "objectnet", objectnet(tmp_path / "objectnet-1.0"))
    assert rows["sample_id"].tolist() == ["objectnet/backpack/3.png", "objectnet/chair/4.png"]
    assert rows["synset"].tolist() == ["n00000994", "n00000995|n00000996"]
    assert (thousand / rows["file"].iloc[1]).is_file()
    assert found.notes["shifted"]["objectnet"]["left_out"] == {
        "classes": 1,
        "images": 2,
        "why": "in no class of ImageNet",
    }


def test_a_broken_objectnet_is_refused(tmp_path):
    folder = objectnet(tmp_path / "objectnet-1.0")
    known = [f"n{number:08d}" for number in range(1000)]

    def refused(file: str, text: str | None, message: str):
        path = folder / "mappings" / file
        whole = path.read_text()
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(GranularityError, match=message):
            imagenet_shifted.read("objectnet", folder, tmp_path, known)
        path.write_text(whole)

    for file in ("folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json", "pytorch_to_imagenet_2012_id.json"):
        refused(file, '{"chair": ', rf"{file}: is truncated or no JSON")
        refused(file, '["chair"]', rf"{file}: is no table")
        refused(file, None, rf"{file}: cannot be read")
    refused("imagenet_to_label_2012_v2", None, "imagenet_to_label_2012_v2: cannot be read")
    refused("imagenet_to_label_2012_v2", "kit fox\n", "imagenet_to_label_2012_v2: does not have '.*' once each")
    refused("objectnet_to_imagenet_1k.json", '{"Chair": "crane"}', "does not have 'crane' once each")
    refused("folder_to_objectnet_label.json", '{"chair": "Chair"}', "does not have 'air_freshener'")
    refused("pytorch_to_imagenet_2012_id.json", '{"1000": 3}', "mappings: is not that of ObjectNet")
    refused("pytorch_to_imagenet_2012_id.json", '{"-1": 3}', "mappings: is not that of ObjectNet")
    refused("pytorch_to_imagenet_2012_id.json", '{"x": 3}', "mappings: is not that of ObjectNet")
    assert len(imagenet_shifted.read("objectnet", folder, tmp_path, known)[0]) == 2
