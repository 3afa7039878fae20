"""What may lie where a data set's file should: no file at all, and JSON or YAML made to take all memory.

Every file that a source, a taxonomy, WordNet or an encoder is read from, times everything that it may turn out to be.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from granularity import cli
from support.bounds import bounded
from support.odd_files import JSONS, KINDS
from support.refusals import as_samples, picture, refused

SYNSETS = ("n00000100", "n00000200")


# ---------------------------------------------------------------- data sets


class Place(NamedTuple):
    """A file that is read: what lies around it, and the options that lead to it."""

    file: str
    around: Callable[[Path], None]
    options: dict


def nothing(root: Path) -> None:
    pass


def images(*folders: str, count: int = 6) -> Callable[[Path], None]:
    """Some pictures in each folder."""

    def write(root: Path) -> None:
        for at, folder in enumerate(folders):
            (root / folder).mkdir(parents=True)
            for i in range(count):
                (root / folder / f"{folder.split('/')[-1]}_{i}.png").write_bytes(picture(20 * at + i))

    return write


def tar(root: Path, label: bytes = b"1", name: str = "0.cls") -> None:
    with tarfile.open(root / "train-0000.tar", "w") as archive:
        for member, data in (("0.png", picture(1)), (name, label)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def hub_table(root: Path, metadata: str | None = None) -> None:
    """A Parquet file of images whose classes have no names, or those in its metadata."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    rows = pa.array([{"bytes": picture(i), "path": None} for i in range(9)], kind)
    table = pa.table({"img": rows, "label": [i % 3 for i in range(9)]})
    pq.write_table(
        table.replace_schema_metadata({"huggingface": metadata} if metadata else None), root / "train.parquet"
    )


def wilds(root: Path) -> None:
    header = "split,location_remapped,y,filename\n"
    (root / "metadata.csv").write_text(header + "".join(f"train,1,{i % 2},{i}.jpg\n" for i in range(4)))


def objectnet(root: Path) -> None:
    """ImageNet's training images of a thousand classes, and ObjectNet beside them."""
    wnids = [f"n{i:08d}" for i in range(1000)]
    for wnid in wnids:
        (root / "train" / wnid).mkdir(parents=True)
        (root / "train" / wnid / "1.png").write_bytes(b"")
    mappings = root / "objectnet" / "mappings"
    mappings.mkdir(parents=True)
    (root / "objectnet" / "images" / "chair").mkdir(parents=True)
    (root / "objectnet" / "images" / "chair" / "1.png").write_bytes(picture(1))
    (mappings / "folder_to_objectnet_label.json").write_text('{"chair": "Chair"}')
    (mappings / "objectnet_to_imagenet_1k.json").write_text('{"Chair": "name 1"}')
    (mappings / "pytorch_to_imagenet_2012_id.json").write_text(json.dumps({str(i): i for i in range(1000)}))
    (mappings / "imagenet_to_label_2012_v2").write_text("".join(f"name {i}\n" for i in range(1000)))


def labelled(rank: str, **options) -> dict:
    return {"ranks": [rank], "target": rank, **options}


SYNSET_FOLDERS = images(*SYNSETS)
IMAGENET = images(*(f"train/{one}" for one in SYNSETS), "val")
OBJECTNET = labelled("synset", source="imagenet", shifted={"objectnet": "objectnet"}, val="objectnet")
SPECIES = labelled("species", source="folder")
PLACES = {
    "an image": Place("cat/bad.png", images("cat", "dog"), SPECIES),
    "an image that is looked at": Place("cat/bad.png", images("cat", "dog"), SPECIES | {"check_images": "fail"}),
    "a taxonomy": Place("t.csv", images("all/cat", "all/dog"), SPECIES | {"taxonomy": "t.csv", "root": "all"}),
    "WordNet": Place(
        "data.noun",
        images(*(f"all/{one}" for one in SYNSETS)),
        labelled("synset", source="folder", wordnet=".", root="all"),
    ),
    "a CSV table": Place("t.csv", images("cat"), labelled("kind", source="table", labels="t.csv")),
    "a Parquet table": Place("t.parquet", images("cat"), labelled("kind", source="table", labels="t.parquet")),
    "Parquet": Place("train.parquet", nothing, labelled("label", source="parquet")),
    "a README.md": Place("README.md", hub_table, labelled("label", source="parquet")),
    "an archive": Place("train-0000.tar", nothing, labelled("label", source="webdataset")),
    "names of classes": Place("names.txt", tar, labelled("label", source="webdataset", labels="names.txt")),
    "MNIST": Place("train-images-idx3-ubyte", nothing, labelled("label", source="mnist")),
    "CIFAR's pickle": Place("data_batch_1", nothing, labelled("class", source="cifar")),
    "CIFAR's records": Place("data_batch_1.bin", nothing, labelled("class", source="cifar")),
    "SVHN": Place("train_32x32.mat", nothing, labelled("label", source="svhn")),
    "annotations": Place("train.json", nothing, labelled("species", source="inaturalist", val="val")),
    "WILDS": Place("metadata.csv", nothing, labelled("label", source="wilds")),
    "WILDS' categories": Place("categories.csv", wilds, labelled("label", source="wilds")),
    "DomainNet": Place("clipart_train.txt", nothing, labelled("label", source="domainnet", train="clipart_train")),
    "ImageNet's labels": Place("labels.txt", IMAGENET, labelled("synset", source="imagenet", labels="labels.txt")),
    "labels of 21k": Place("l.txt", SYNSET_FOLDERS, labelled("synset", source="imagenet21k", labels="l.txt")),
    "compressed labels": Place("l.gz", SYNSET_FOLDERS, labelled("synset", source="imagenet21k", labels="l.gz")),
    "a mapping": Place("objectnet/mappings/folder_to_objectnet_label.json", objectnet, OBJECTNET),
    "names in a mapping": Place("objectnet/mappings/imagenet_to_label_2012_v2", objectnet, OBJECTNET),
}


def words(place: Place, root: Path) -> list:
    """The command for a data set; paths in its options are below the root."""
    options = {"root": "."} | place.options
    for key in ("root", "taxonomy", "wordnet"):
        if key in options:
            options[key] = root / options[key]
    if "shifted" in options:
        options["shifted"] = {name: str(root / one) for name, one in options["shifted"].items()}
    return as_samples(**options)


def laid_out(place: Place, root: Path) -> Path:
    """The place of the file, with all around it and without itself."""
    root.mkdir()
    place.around(root)
    file = root / place.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    return file


@pytest.mark.parametrize("what", PLACES)
def test_what_is_no_file(what, tmp_path):
    place, root = PLACES[what], tmp_path / "data"
    file = laid_out(place, root)
    for kind, make in KINDS.items():
        if kind == "a folder" and place.options["source"] == "folder" and place.file.endswith(".png"):
            continue  # a folder may have any name
        make(file)
        try:
            named = root if place.options.get("check_images") != "fail" else place.file
            refused("no files", words(place, root), named, tmp_path)
        except BaseException as error:
            raise AssertionError(f"{kind}: {type(error).__name__}: {error}") from error
        file.rmdir() if kind == "a folder" else file.unlink()


# ---------------------------------------------------------------- JSON and YAML


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
YAMLS = {
    "aliases": LAUGHS + "dataset_info: *a8",
    "aliases at seven levels": LAUGHS.replace("a6: &a6 ", "dataset_info: &a6 ").partition("\na7")[0],
    "an alias of a long text": f"a: &a {'x' * 900_000}\ndataset_info: [{', '.join(['*a'] * 5000)}]",
    "one alias": "a: &a 3\ndataset_info: *a",
    "within itself": "dataset_info: &a [*a]",
    "deep": "dataset_info: " + "[" * 60 + "]" * 60,
    "deeper than Python's stack": "dataset_info: " + "[" * 100_000,
    "many values": "dataset_info: [" + "x, " * 300_000 + "]",
    "a key twice": "dataset_info: 1\ndataset_info: 2",
    "an object of Python's": "dataset_info: !!python/object/apply:os.system [echo]",
    "a date that is none": "dataset_info: 2020-99-99",
    "no YAML": "dataset_info: [",
}
JSON_PLACES = {
    "annotations": PLACES["annotations"],
    "a mapping": PLACES["a mapping"],
    "names in a mapping": PLACES["a mapping"]._replace(file="objectnet/mappings/objectnet_to_imagenet_1k.json"),
}


@pytest.mark.parametrize("what", JSON_PLACES)
def test_json_of_a_publisher(what, tmp_path):
    place, root = JSON_PLACES[what], tmp_path / "data"
    file = laid_out(place, root)
    for text in JSONS.values():
        file.write_text(text, encoding="latin-1")
        refused("JSON", words(place, root), file, tmp_path)


@pytest.mark.parametrize("bad", JSONS)
def test_json_within_other_files(bad, tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    for write, name, source in ((hub_table, "train.parquet", "parquet"), (in_tar, "train-0000.tar", "webdataset")):
        write(root, JSONS[bad])
        refused("JSON", words(Place(name, nothing, labelled("label", source=source)), root), name, tmp_path)
        (root / name).unlink()


def in_tar(root: Path, text: str) -> None:
    tar(root, text.encode("latin-1"), "0.json")


@pytest.mark.parametrize("bad", YAMLS)
def test_yaml_of_a_hub(bad, tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    hub_table(root)
    (root / "README.md").write_text(f"---\n{YAMLS[bad]}\n---\n")
    refused("YAML", as_samples(root=root, **labelled("label", source="parquet")), root / "README.md", tmp_path)


# ---------------------------------------------------------------- links


def above(root: Path) -> Path:
    (root / "cat" / "up").symlink_to("..")
    return root / "cat" / "up"


def above_in_each(root: Path) -> Path:
    for folder in ("cat", "dog"):
        for i in range(20):
            (root / folder / f"up{i}").symlink_to("..")
    return root


def here(root: Path) -> Path:
    (root / "cat" / "here").symlink_to(".")
    return root / "cat" / "here"


def each_other(root: Path) -> Path:
    (root / "cat" / "dog").symlink_to("../dog")
    (root / "dog" / "cat").symlink_to("../cat")
    return root


def doubling(root: Path) -> Path:
    """Forty levels with two links each to the next: no loop, and a million million ways."""
    for i in range(40):
        (root.parent / f"level{i}").mkdir()
        for name in "ab":
            (root.parent / f"level{i}" / name).symlink_to(f"../level{i + 1}")
    (root.parent / "level40").mkdir()
    (root / "cat" / "down").symlink_to("../../level0")
    return root / "cat" / "down"


LOOPS = [above, above_in_each, here, each_other, doubling]


@pytest.mark.parametrize("checked", ["no", "skip"])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_links_that_never_end(loop, checked, tmp_path):
    root = tmp_path / "data"
    images("cat", "dog")(root)
    named = loop(root)
    message = refused("links", as_samples(root=root, **SPECIES, check_images=checked), named, tmp_path)
    assert "remove" in message


def test_links_to_images_and_folders_are_followed_out_of_the_root(tmp_path):
    """Also twice to the same folder, as two classes may share one."""
    images("cats", "dogs")(tmp_path / "disk")
    root = tmp_path / "data"
    (root / "dog").mkdir(parents=True)
    (root / "cat").symlink_to(tmp_path / "disk" / "cats")
    (root / "lion").symlink_to("cat")
    for file in (tmp_path / "disk" / "dogs").iterdir():
        (root / "dog" / file.name).symlink_to(file)
    with bounded():
        cli.app([*as_samples(root=root, **SPECIES), "--output", str(tmp_path / "out")], standalone_mode=False)
    table = pq.read_table(tmp_path / "out" / "samples.parquet").to_pandas()
    assert table["species"].value_counts().to_dict() == {"cat": 6, "lion": 6, "dog": 6}


# ---------------------------------------------------------------- images


def side(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("1", (width, height)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("shape", [(10_000, 10_000), (200_000, 1000)])
def test_images_of_too_many_pixels(shape, tmp_path):
    root = tmp_path / "data"
    images("cat", "dog")(root)
    (root / "cat" / "bomb.png").write_bytes(side(*shape))
    refused("images", as_samples(root=root, **SPECIES, check_images="fail"), "cat/bomb.png", tmp_path)
