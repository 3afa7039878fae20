"""Every source of docs/datasets.md, by the example printed there, to label spaces, by the commands of the rules.

The files are made on the spot in the publisher's layout. A source whose example has no maker here fails.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
import yaml
from torchvision import datasets

from granularity.base import extensions
from granularity.config import files
from granularity.store.artifact import Artifact
from support import data_sets, small_wordnet, tiny_chain

PAGE = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
CODE = re.search(r"```python\n# (lists\.py)\n(.*?)```", PAGE, re.DOTALL).groups()
EXAMPLE = re.compile(r"^(?:extensions:.*\n)?samples:.*\n(?:  .*\n)*", re.MULTILINE)
SIZE = 4


def examples(folder: str = "") -> dict[str, dict]:
    """The configuration printed for each source, with its absolute paths below a folder.

    A block without the key `samples` adds keys to the example before it.
    """
    found = {}
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        block = re.sub(r"(?<=[ {])/(?=data/|usr/)", f"{folder}/", block)
        for text in EXAMPLE.findall(block):
            one = yaml.safe_load(text)
            assert found.setdefault(one["samples"]["source"], one) is one, f"two examples of a source: {text}"
        if "samples:" not in block:
            one["samples"] |= yaml.safe_load(block)
    return found


class Made(NamedTuple):
    """A data set: its images in each split of the sample table, its classes, and keys that the example leaves out."""

    images: dict[str, int]
    classes: dict[str, int]
    more: Mapping[str, object] = MappingProxyType({})


def folder(root: Path) -> Made:
    kinds = ("animal/dog", "animal/cat", "plant/rose")
    data_sets.fill(root, *(f"{kind}/{number}.jpg" for kind in kinds for number in range(5)))
    return Made({"train": 12, "val": 3}, {"kind": 2, "species": 3})


def table(root: Path) -> Made:
    rows = [("animal", "dog"), ("animal", "cat"), ("plant", "rose"), ("plant", "rose")] * 3
    lines = [f"{number}.jpg,{'val' if number < 4 else 'train'},{','.join(row)}" for number, row in enumerate(rows)]
    data_sets.fill(root, *(f"{number}.jpg" for number in range(len(rows))))
    (root / "images.csv").write_text("\n".join(["path,split,kind,species", *lines]) + "\n")
    return Made({"train": 8, "val": 4}, {"kind": 2, "species": 3})


def inaturalist(root: Path) -> Made:
    for split, each, first in (("train_mini", 3, 0), ("val", 2, 100)):
        data = data_sets.annotations_of(split, data_sets.categories_of(), each, first)
        data_sets.inaturalist(root, split, data)
    classes = {"supercategory": 3, "class": 3, "order": 3, "family": 4, "genus": 3, "species": 4}
    return Made({"train": 12, "val": 8}, classes)


def imagenet(root: Path) -> Made:
    """With test sets of another distribution, of which ImageNetV2 needs all classes."""
    data_sets.thousand(root, 2)
    kit = root / "ILSVRC2012_devkit_t12" / "data"
    data_sets.devkit(kit, {number: f"n{1000 - number:08d}" for number in range(1, 1001)})
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("490\n361\n171\n")
    data_sets.fill(root, *(f"val/ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2, 3)))
    data_sets.fill(root.parent / "imagenet-r", "n00000003/art_0.jpg", "n00000999/misc_1.jpg")
    data_sets.fill(root.parent / "imagenetv2-matched-frequency-format-val", "0/a.jpeg", "10/b.jpeg", "999/c.jpeg")
    return Made({"train": 2000, "val": 3, "r": 2, "v2": 3}, {"synset": 1000})


def imagenet21k(root: Path) -> Made:
    """With as many images for validation as there can be."""
    data_sets.packed(root, ("n00000010", "n00000020", "n00000030", "n00000040"))
    wordnet = root.parents[1] / "usr" / "share" / "wordnet"
    wordnet.mkdir(parents=True)
    (wordnet / "data.noun").write_text(small_wordnet.SMALL)
    return Made({"train": 10, "val": 2}, {"living_thing": 2, "synset": 4}, {"validation": 2})


def cifar(root: Path) -> Made:
    taxonomy = (Path(__file__).parents[2] / "config/taxonomies/cifar10.csv").read_text().splitlines()[2:]
    data_sets.cifar10(root, [line.split(",")[0] for line in taxonomy])
    groups = len({line.split(",")[1] for line in taxonomy})
    return Made({"train": 50, "val": 10}, {"kind": 2, "group": groups, "class": 10})


def mnist(root: Path) -> Made:
    data_sets.mnist(root, labels=range(10))
    return Made({"train": 10, "val": 10}, {"loops": 3, "label": 10})


def svhn(root: Path) -> Made:
    data_sets.svhn(root, np.zeros((32, 32, 3, 10), np.uint8), [*range(1, 11)])
    return Made({"train": 10, "val": 10}, {"label": 10})


def parquet(root: Path) -> Made:
    for number, split in enumerate(("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001")):
        data_sets.parquet(root / "data" / f"{split}.parquet", [0, 1, 2], ["zebra", "ant", "moth"], first=3 * number)
    return Made({"train": 6, "val": 3}, {"label": 3})


def webdataset(root: Path) -> Made:
    for number, split in enumerate(("train-0000", "train-0001", "validation-00")):
        data_sets.shard(root / f"imagenet1k-{split}.tar", data_sets.pairs([0, 2, 1], first=3 * number))
    (root / "imagenet_synsets.txt").write_text("n01440764\nn01443537\nn02123045\n")
    return Made({"train": 6, "val": 3}, {"synset": 3})


def wilds(root: Path) -> Made:
    data_sets.iwildcam(root, 6)
    return Made({"train": 6, "val": 6, "val (published)": 6, "test": 6}, {"label": 2})


def domainnet(root: Path) -> Made:
    data_sets.domains(root, "{}.txt", "", ("real_train", "real_test", "sketch_test"), 3)
    return Made({"train": 6, "val": 6, "sketch_test": 6}, {"label": 2})


def pacs(root: Path) -> Made:
    data_sets.domains(root, "splits/{}_kfold.txt", "images", ("photo_train", "photo_crossval", "sketch_test"), 3)
    return Made({"train": 6, "val": 6, "sketch_test": 6}, {"label": 2})


def lists(root: Path) -> Made:
    names = [f"{number}.jpg" for number in range(10)]
    data_sets.fill(root, *names)
    (root / "images.txt").write_text("".join(f"{name}\t{'cat' if name < '4' else 'dog'}\n" for name in names))
    return Made({"train": 8, "val": 2}, {"label": 2}, {"validation": 2})


IMAGENETS = (imagenet, imagenet21k)
ARRAYS = (cifar, mnist, svhn)
TABLES = (table, inaturalist, wilds, domainnet, pacs, lists)
MAKERS = {one.__name__: one for one in (folder, *IMAGENETS, *ARRAYS, *TABLES, parquet, webdataset)}


@pytest.fixture
def known(monkeypatch):
    """CIFAR and SVHN are known by the publisher's MD5: here, by the MD5 of the files made on the spot."""

    def of(root: Path) -> None:
        md5 = {file.name: hashlib.md5(file.read_bytes()).hexdigest() for file in root.iterdir() if file.is_file()}
        for split in ("train_list", "test_list"):
            files = [(name, md5.get(name)) for name, _ in getattr(datasets.CIFAR10, split)]
            monkeypatch.setattr(datasets.CIFAR10, split, files)
        meta = datasets.CIFAR10.meta
        monkeypatch.setattr(datasets.CIFAR10, "meta", meta | {"md5": md5.get(meta["filename"])})
        splits = {split: (url, name, md5.get(name)) for split, (url, name, _) in datasets.SVHN.split_list.items()}
        monkeypatch.setattr(datasets.SVHN, "split_list", splits)

    return of


def test_the_page_has_an_example_of_every_source():
    others = {"torchvision", "digits"}  # the digits are the default, which other tests run
    assert examples().keys() == {*extensions.names("source"), "lists"} - others


@pytest.mark.parametrize("source", examples())
def test_an_example_leads_to_label_spaces(source, known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(CODE[0]).write_text(CODE[1])
    config = examples(str(tmp_path))[source]
    samples = config["samples"]
    root = tmp_path / samples.get("root", "data")
    made = MAKERS[source](root)
    known(root)
    samples |= made.more
    manual = samples["ranks"][1:][-1:]  # the finest, where there is one below the target
    spaces = {"manual": manual, "random": [2], "rebalanced": {"clusters": [2]}}
    more = {"name": source, "samples": samples, "label_spaces": spaces, "pretrain": {"batch_size": SIZE}}
    sizes = {"all": made.images} | ({SIZE: made.images | {"train": SIZE}} if source == "folder" else {})
    more["conditions"] = [{"train_size": size} for size in sizes]
    Path("example.yaml").write_text(json.dumps(config | more))
    for step in tiny_chain.steps(files.load("example.yaml")):
        if step.kind in ("samples", "encoder", "embed", "cluster", "hierarchy"):
            step.run()
    extensions.load([])
    granularity = {"target": made.classes[samples["target"]], "random-2": 2}
    granularity |= {f"manual-{rank}": made.classes[rank] for rank in manual}
    for size, images in sizes.items():
        chain = Path(f"results/{source}/train-{size}")
        summary = Artifact.open(chain / "samples").summary
        assert summary["images"] == images
        found = {one.name: Artifact.open(one) for one in (chain / "hierarchy").iterdir() if one.is_symlink()}
        assert {len(one.table("labels.parquet")) for one in found.values()} == {images["train"]}
        if size == "all":
            assert summary["classes"] == made.classes
            assert {name: one.summary["granularity"] for name, one in found.items()} == granularity
        assert found.keys() == granularity.keys()
