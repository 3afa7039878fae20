"""Data sets that another source reads: MNIST's family, CIFAR, SVHN, WILDS, DomainNet, PACS, ImageNet-21k.

Layouts: the archives as torchvision.datasets unpacks them; wilds/datasets/*_dataset.py; http://ai.bu.edu/M3SDA/;
DATASETS.md of Dassl.pytorch; image-net.org/download-images.
"""

import gzip
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from torchvision import datasets

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples import source
from granularity.store.artifact import Artifact
from support.data_sets import domains, idx, iwildcam, mnist, packed, pickled, svhn
from support.sampling import make, save, section


def params_of(name: str, root: Path, ranks=("label",), **options):
    return section(source=name, root=root, ranks=list(ranks), target=ranks[0], **options)


def run(name: str, root: Path, ranks=("label",), **options):
    """The table, and the artifact."""
    make(params_of(name, root, ranks, **options), root.parent / "samples")
    artifact = Artifact.open(root.parent / "samples", "samples")
    return artifact.table("samples.parquet"), artifact


def refused(message: str, name: str, root: Path, ranks=("label",), **options) -> None:
    with pytest.raises(GranularityError, match=message) as caught:
        run(name, root, ranks, **options)
    assert "\n" not in str(caught.value) and not (root.parent / "samples").exists()


def test_digits():
    found, truth = source.find(section()), load_digits()
    assert found.frame["sample_id"].tolist() == [f"digits/{i:04d}" for i in range(1797)]
    decoded = np.stack([np.asarray(Image.open(io.BytesIO(png))) for png in found.images])
    np.testing.assert_array_equal(decoded, np.round(truth.images * 255 / 16).astype(np.uint8))
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert [names.index(name) for name in found.frame["digit"]] == truth.target.tolist()
    assert found.frame.groupby("loops")["digit"].agg(set).to_dict() == {
        "no closed loop": {"one", "two", "three", "five", "seven"},
        "one closed loop": {"zero", "four", "six", "nine"},
        "two closed loops": {"eight"},
    }


@pytest.fixture
def cifar(tmp_path, monkeypatch) -> Path:
    """CIFAR-100 of six images, with its checksums in torchvision's list."""
    folder = tmp_path / "data" / "cifar-100-python"
    pixels = np.arange(6 * 3072, dtype=np.int64).reshape(6, 3072).astype(np.uint8)
    fine, coarse = [5, 0, 99, 5, 0, 99], [1, 0, 19, 1, 0, 19]
    batch = {"data": pixels, "fine_labels": fine, "coarse_labels": coarse}
    monkeypatch.setattr(datasets.CIFAR100, "train_list", [pickled(folder / "train", batch)])
    monkeypatch.setattr(datasets.CIFAR100, "test_list", [pickled(folder / "test", batch)])
    names = {"fine_label_names": [f"f{i}" for i in range(100)], "coarse_label_names": [f"c{i}" for i in range(20)]}
    name, md5 = pickled(folder / "meta", names)
    monkeypatch.setattr(datasets.CIFAR100, "meta", {"filename": name, "key": "fine_label_names", "md5": md5})
    return folder


def test_cifar(cifar):
    for root in (cifar, cifar.parent):
        table, artifact = run("cifar", root, ["superclass", "class"])
    assert table["sample_id"].tolist() == [f"{split}/{i:05d}" for split in ("train", "test") for i in range(6)]
    assert table["split"].tolist() == ["train"] * 6 + ["val"] * 6
    assert table[["class", "superclass"]].values.tolist()[:3] == [["f5", "c1"], ["f0", "c0"], ["f99", "c19"]]
    planes = (3072 + np.arange(3072)).astype(np.uint8).reshape(3, 32, 32)  # red, green and blue, one after the other
    np.testing.assert_array_equal(np.asarray(Images(artifact).load(1)), planes.transpose(1, 2, 0))


class Evil:
    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_no_pickle_is_opened_before_its_checksum(cifar, tmp_path, name):
    pickled(cifar / name, Evil(tmp_path / "pwned"))
    refused(rf"{name}: is not the publisher's file \(MD5 .*\), so it is not opened", "cifar", cifar, ["class"])
    assert not (tmp_path / "pwned").exists()


def test_torchvision_has_a_checksum_of_every_pickle_and_of_svhn():
    for kind in (datasets.CIFAR10, datasets.CIFAR100):
        assert all(len(md5) == 32 for _, md5 in [*kind.train_list, *kind.test_list, (0, kind.meta["md5"])])
    assert all(len(md5) == 32 for _, _, md5 in datasets.SVHN.split_list.values())


def test_svhn(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 5)).astype(np.uint8)
    files = svhn(tmp_path / "data", pixels, [1, 10, 3, 9, 2])
    monkeypatch.setattr(datasets.SVHN, "split_list", {name.partition("_")[0]: ("", name, md5) for name, md5 in files})
    table, artifact = run("svhn", tmp_path / "data")
    assert table["label"].tolist() == ["1", "0", "3", "9", "2"] * 2  # the publisher's 10 is the digit 0
    assert table["split"].tolist() == ["train"] * 5 + ["val"] * 5
    np.testing.assert_array_equal(np.asarray(Images(artifact).load(2)), pixels[..., 2])
    (tmp_path / "data" / "test_32x32.mat").write_bytes(b"MATLAB 5.0")
    with pytest.raises(GranularityError, match=r"test_32x32\.mat: is not the publisher's file"):
        source.find(params_of("svhn", tmp_path / "data"))


@pytest.mark.parametrize(("zipped", "mark", "below"), [(True, "-", ""), (False, "-", "MNIST/raw"), (False, ".", "")])
def test_mnist(tmp_path, zipped, mark, below):
    images = mnist(tmp_path / "data" / below, zipped=zipped, mark=mark)
    table, artifact = run("mnist", tmp_path / "data")
    assert table["label"].tolist() == ["3", "1", "4"] * 2
    assert table["label"].cat.categories.tolist() == [str(i) for i in range(10)]
    np.testing.assert_array_equal(np.asarray(Images(artifact).load(1, "L")), images[1])


def test_emnist_is_turned_upright_and_its_letters_count_from_1(tmp_path):
    images = mnist(tmp_path / "data", "emnist-letters-", labels=(1, 26, 2))
    table, artifact = run("mnist", tmp_path / "data")
    assert table["label"].tolist()[:3] == ["1", "26", "2"] and len(table["label"].cat.categories) == 26
    np.testing.assert_array_equal(np.asarray(Images(artifact).load(0, "L")), images[0].T)


def test_broken_idx_files_are_one_line(tmp_path):
    root = tmp_path / "data"
    mnist(root)
    file = root / "t10k-labels-idx1-ubyte.gz"
    broken = r"t10k-labels-idx1-ubyte\.gz: is truncated or not an IDX file"
    for data, message in {
        file.read_bytes()[:-9]: broken,
        gzip.compress(idx(np.zeros((2, 2)))): broken,
        gzip.compress(idx(np.zeros(9))[:-1]): broken,
        gzip.compress(idx(np.zeros(9))): "t10k has 3 images, but 9 labels",
        gzip.compress(idx(np.array([3, 10, 0]))): "data: no known label for 1 images, such as .test/00001",
    }.items():
        file.write_bytes(data)
        refused(message, "mnist", root)


def test_the_files_of_one_data_set_are_needed(tmp_path, cifar):
    refused("data: contains no data set; point samples.root at the folder", "mnist", cifar.parent)
    mnist(cifar.parent)
    refused("data: contains files of several data sets; point", "torchvision", cifar.parent, ["class"])
    assert len(source.find(params_of("mnist", cifar.parent)).frame) == 6


def camelyon17(root: Path) -> list[str]:
    header = ",patient,node,x_coord,y_coord,tumor,slide,center,split\n"
    rows = [(0, 0, 1), (3, 1, 0), (1, 0, 1), (2, 1, 0)]  # center, split, tumor
    ids = [f"{i},004,{i},33,21,{tumor},1,{center},{split}" for i, (center, split, tumor) in enumerate(rows)]
    (root / "patches").mkdir(parents=True)
    (root / "metadata.csv").write_text(header + "\n".join(ids) + "\n")
    slides = [f"patient_004_node_{i}" for i in range(4)]
    return [f"patches/{slide}/patch_{slide}_x_33_y_21.png" for slide in slides]


@pytest.mark.parametrize(
    ("write", "labels", "rank", "others"),
    [
        (iwildcam, ["empty", "fox", "empty", "fox"], "location", ["20", "19", "18", "17"]),
        (camelyon17, ["tumor", "normal", "tumor", "normal"], "center", ["0", "3", "1", "2"]),
    ],
)
def test_wilds(tmp_path, write, labels, rank, others):
    files = write(tmp_path / "data")
    params = params_of("wilds", tmp_path / "data", val="id_val", extra_splits=["val", "test"])
    found = source.find(params)
    assert found.ranks == ["label", rank]
    assert found.frame["file"].tolist() == found.frame["sample_id"].tolist() == files
    assert found.frame["split"].tolist() == ["train", "id_val", "val", "test"]
    assert found.frame["distribution"].tolist() == ["ID", "ID", "OOD", "OOD"]
    assert found.frame["label"].tolist() == labels and found.frame[rank].tolist() == others


def test_broken_tables_of_wilds_are_one_line(tmp_path):
    root = tmp_path / "data"
    iwildcam(root)
    (root / "categories.csv").write_text("name,y\nempty,0\n")
    refused("data: no known label for 1 images, such as 'train/1.jpg'", "wilds", root, val="id_val")
    (root / "metadata.csv").write_text("split,y\ntrain,0\n")
    refused("data: metadata.csv and categories.csv have no column 'patient'", "wilds", root)


@pytest.mark.parametrize(
    ("name", "lists", "above"),
    [("domainnet", "{}.txt", ""), ("domainnet", "splits/{}.txt", ""), ("pacs", "splits/{}_kfold.txt", "images/")],
)
def test_lists_of_domains(tmp_path, name, lists, above):
    domains(tmp_path / "data", lists, above, ("real_train", "real_test", "art_painting_test"))
    names = {"train": "real_train", "val": "real_test", "extra_splits": ["art_painting_test"]}
    table, _ = run(name, tmp_path / "data", ["domain", "label"], **names)
    assert table["split"].tolist() == ["train"] * 2 + ["val"] * 2 + ["art_painting_test"] * 2
    assert table["distribution"].tolist() == ["ID"] * 4 + ["OOD"] * 2
    assert table["label"].tolist() == ["zebra", "ant"] * 3
    assert table["domain"].tolist() == ["real"] * 4 + ["art_painting"] * 2
    assert table["file"].iloc[0] == f"{above}real/zebra/real_train_0.jpg"


def test_broken_lists_of_domainnet_are_one_line(tmp_path):
    root = tmp_path / "data"
    domains(root, "{}.txt", splits=("real_train", "real_test"))
    refused(r"samples\.train: name the split to train on", "domainnet", root)
    names = {"train": "real_train", "val": "real_test"}
    for text in ("real/zebra/1.jpg", "real/1.jpg 3", "../../etc/1.jpg 3\n", "/a/b.jpg 3"):
        (root / "real_test.txt").write_text(text)
        message = rf"real_test\.txt: line 1: '{text.strip()}.*' is not DOMAIN/LABEL/IMAGE and a number"
        refused(message, "domainnet", root, **names)


SYNSETS = ("n00000100", "n00000200")


def test_imagenet21k_is_the_same_from_folders_and_from_archives(tmp_path):
    packed(tmp_path / "tars", SYNSETS)
    for synset in SYNSETS:
        with tarfile.open(tmp_path / "tars" / f"{synset}.tar") as archive:
            archive.extractall(tmp_path / "folders" / synset, filter="data")
    tables = {}
    for name in ("tars", "folders"):
        tables[name], artifact = run("imagenet21k", tmp_path / name, ["synset"], validation=2)
        images = Images(artifact)
        for i, sample_id in enumerate(tables[name]["sample_id"]):
            synset, _, number = sample_id.removesuffix(".JPEG").partition("/")[2].partition("_")
            assert images.load(i, "L").getpixel((0, 0)) == int(synset[-3:]) // 2 + int(number)
    places = ["file", "row", "offset"]
    assert tables["tars"].drop(columns=places).equals(tables["folders"].drop(columns=places))
    assert tables["tars"]["sample_id"].iloc[0] == "n00000100/n00000100_0.JPEG"
    (tmp_path / "tars" / SYNSETS[0]).mkdir()
    save(tmp_path / "tars" / SYNSETS[0] / "1.png")
    with pytest.raises(GranularityError, match="tars: contains both images in folders and archives"):
        source.find(params_of("imagenet21k", tmp_path / "tars", ["synset"]))


def test_only_the_preset_reads_archives(tmp_path):
    packed(tmp_path / "tars", SYNSETS)
    refused("tars: contains no images", "folder", tmp_path / "tars", ["synset"], validation=1)
