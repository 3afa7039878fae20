"""What may lie where a data set's file should: no file at all, and JSON or YAML made to take all memory.

Every file that a source, a taxonomy, WordNet or an encoder is read from, times everything that it may turn out to be.
"""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from granularity import cli
from support.bounds import bounded
from support.data_sets import STRUCT, shard
from support.refusals import as_samples, picture, refused

SYNSETS = ("n00000100", "n00000200")


def a_socket(file: Path) -> None:
    with contextlib.chdir(file.parent), socket.socket(socket.AF_UNIX) as one:  # its address has room for 100 bytes
        one.bind(file.name)


def a_hole(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 40)


KINDS = {
    "a FIFO": os.mkfifo,
    "a socket": a_socket,
    "a device": lambda file: file.symlink_to("/dev/zero"),
    "a terminal": lambda file: file.symlink_to("/dev/ptmx"),
    "a link to nothing": lambda file: file.symlink_to("nothing"),
    "a folder": Path.mkdir,
    "a terabyte": a_hole,
}


JSONS = {
    "deeper than Python's stack": '{"a":' * 100_000,
    "a key twice": '{"x": 1, "x": 1}',
    "a number of a million digits": '{"x": ' + "9" * 1_000_000 + "}",
    "UTF-16": '{"x": 1}'.encode("utf-16").decode("latin-1"),
}


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
    shard(root / "train-0000.tar", {"0.png": picture(1), name: label})


def hub_table(root: Path, metadata: str | None = None) -> None:
    """A Parquet file of images whose classes have no names, or those in its metadata."""
    rows = pa.array([{"bytes": picture(i), "path": None} for i in range(9)], STRUCT)
    table = pa.table({"img": rows, "label": [i % 3 for i in range(9)]})
    pq.write_table(
        table.replace_schema_metadata({"huggingface": metadata} if metadata else None), root / "train.parquet"
    )


def wilds(root: Path) -> None:
    header = "split,location_remapped,y,filename\n"
    (root / "metadata.csv").write_text(header + "".join(f"train,1,{i % 2},{i}.jpg\n" for i in range(4)))


def cifar(root: Path) -> None:
    (root / "batches.meta").write_bytes(b"no pickle")


def labelled(rank: str, **options) -> dict:
    return {"ranks": [rank], "target": rank, **options}


IMAGENET = images(*(f"train/{one}" for one in SYNSETS), "val")
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
    "CIFAR's pickle": Place("data_batch_1", cifar, labelled("class", source="cifar")),
    "SVHN": Place("train_32x32.mat", nothing, labelled("label", source="svhn")),
    "annotations": Place("train.json", nothing, labelled("species", source="inaturalist", val="val")),
    "WILDS": Place("metadata.csv", nothing, labelled("label", source="wilds")),
    "WILDS' categories": Place("categories.csv", wilds, labelled("label", source="wilds")),
    "DomainNet": Place("clipart_train.txt", nothing, labelled("label", source="domainnet", train="clipart_train")),
    "ImageNet's labels": Place("labels.txt", IMAGENET, labelled("synset", source="imagenet", labels="labels.txt")),
}


def words(place: Place, root: Path) -> list:
    """The command for a data set; paths in its options are below the root."""
    options = {"root": "."} | place.options
    for key in ("root", "taxonomy", "wordnet"):
        if key in options:
            options[key] = root / options[key]
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


YAMLS = {
    "deeper than Python's stack": "dataset_info: " + "[" * 100_000,
    "an object of Python's": "dataset_info: !!python/object/apply:os.system [echo]",
    "a date that is none": "dataset_info: 2020-99-99",
    "no YAML": "dataset_info: [",
}


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
