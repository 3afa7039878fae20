"""The MNIST family: IDX files, gzipped or not, under the names that publishers and mirrors give them."""

from __future__ import annotations

import gzip
import inspect
import struct
from pathlib import Path

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.sources import mnist
from granularity.store.artifacts import Artifact
from support.sampling import make, section

TAXONOMIES = Path(__file__).parents[4] / "config" / "taxonomies"
DIGITS = np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5])
TRAINS = 8


def idx(array: np.ndarray) -> bytes:
    """IDX as yann.lecun.com/exdb/mnist defined it: 0, 0, 8 (unsigned bytes), the dimensions, all big-endian."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (len(DIGITS), 28, 28), dtype=np.uint8)


def write(root: Path, images, labels=DIGITS, prefix="", test="t10k", mark="-", end="") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", slice(0, TRAINS)), (test, slice(TRAINS, None))):
        for kind, array in ((f"images{mark}idx3-ubyte", images[rows]), (f"labels{mark}idx1-ubyte", labels[rows])):
            data = idx(array)
            (root / f"{prefix}{name}-{kind}{end}").write_bytes(gzip.compress(data, 1) if end else data)
    return root


def sample(root: Path, output: Path, ranks=("label",), **options) -> Path:
    params = section(source="mnist", root=root, ranks=list(ranks), target=ranks[0], **options)
    return make(params, output)


def refused(root: Path, tmp_path: Path) -> str:
    with pytest.raises(GranularityError) as caught:
        sample(root, tmp_path / "samples")
    assert not (tmp_path / "samples").exists()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message.removeprefix(f"{root}/")


def check(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    artifact = Artifact.open(folder, "samples")
    table = artifact.table("samples.parquet")
    tests = len(images) - TRAINS
    ids = [f"train/{i:05d}" for i in range(TRAINS)] + [f"test/{i:05d}" for i in range(tests)]
    assert table["sample_id"].tolist() == ids
    assert table["split"].tolist() == ["train"] * TRAINS + ["val"] * tests
    assert table["label"].tolist() == [str(label) for label in labels]
    reader = Images(artifact)
    for i, image in enumerate(images):
        np.testing.assert_array_equal(np.asarray(reader.load(i, "L")), image)


# ---------------------------------------------------------------- good files


@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("end", ["", ".gz"])
def test_mnist(tmp_path, images, mark, end):
    root = write(tmp_path / "root", images, mark=mark, end=end)
    check(sample(root, tmp_path / "samples"), images, DIGITS)


def test_labels_are_in_numeric_order(tmp_path, images):
    for prefix, first, last in (("", 0, 9), ("emnist-letters-", 1, 26), ("emnist-byclass-", 0, 61)):
        labels = DIGITS + first
        root = write(tmp_path / f"root {prefix}", images, labels, prefix, "test" if prefix else "t10k")
        frame = mnist.read(section(source="mnist", root=root, ranks=["label"], target="label")).frame
        assert frame["label"].cat.categories.tolist() == [str(label) for label in range(first, last + 1)]
        assert frame["label"].tolist() == [str(label) for label in labels]


def test_emnist_is_turned_upright(tmp_path, images):
    # https://www.tensorflow.org/datasets/catalog/emnist: "inverted horizontally and rotated 90 anti-clockwise"
    published = np.rot90(images[:, :, ::-1], 1, axes=(1, 2))
    root = write(tmp_path / "root", published, DIGITS + 17, "emnist-letters-", "test", end=".gz")
    check(sample(root, tmp_path / "samples"), images, DIGITS + 17)


def test_a_file_that_a_browser_unpacked_keeps_its_name(tmp_path, images):
    root = write(tmp_path / "root", images, end=".gz")
    file = root / "train-images-idx3-ubyte.gz"
    file.write_bytes(gzip.decompress(file.read_bytes()))
    (root / "t10k-labels-idx1-ubyte.gz").rename(root / "t10k-labels-idx1-ubyte")
    check(sample(root, tmp_path / "samples"), images, DIGITS)


def test_packed_and_unpacked_side_by_side_are_one_data_set(tmp_path, images):
    write(tmp_path / "root", images)
    write(tmp_path / "root", images, end=".gz")
    check(sample(tmp_path / "root", tmp_path / "samples"), images, DIGITS)


def test_images_need_not_be_28_by_28(tmp_path, images):
    root = write(tmp_path / "root", images[:, :20, :])
    check(sample(root, tmp_path / "samples"), images[:, :20, :], DIGITS)


def test_the_taxonomies_join(tmp_path, images):
    root = write(tmp_path / "root", images)
    loops = sample(root, tmp_path / "loops", ("loops", "label"), taxonomy=TAXONOMIES / "mnist.csv")
    table = Artifact.open(loops).table("samples.parquet")
    assert table["loops"].tolist()[:3] == ["no closed loop", "one closed loop", "one closed loop"]
    clothes = sample(root, tmp_path / "clothes", ("group", "name"), taxonomy=TAXONOMIES / "fashion_mnist.csv")
    table = Artifact.open(clothes).table("samples.parquet")
    assert table["name"].tolist()[:3] == ["Sandal", "T-shirt/top", "Coat"]
    assert table["group"].tolist()[:3] == ["footwear", "top", "top"]


def test_images_are_encoded_one_at_a_time(tmp_path, images):
    root = write(tmp_path / "root", images)
    assert inspect.isgenerator(mnist.read(section(source="mnist", root=root, ranks=["label"], target="label")).images)


# ---------------------------------------------------------------- bad files


NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(tmp_path, images, name):
    root = write(tmp_path / "root", images)
    (root / name).unlink()
    assert refused(root, tmp_path).startswith(f"{name}: is missing")


def test_no_files_and_two_data_sets(tmp_path, images):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "qmnist-train-labels-idx2-int.gz").write_bytes(b"another layout")
    assert "root: holds no file of MNIST's layout" in refused(tmp_path / "root", tmp_path)
    write(tmp_path / "root", images)
    write(tmp_path / "root", images, prefix="emnist-digits-", test="test")
    message = refused(tmp_path / "root", tmp_path)
    assert "holds train-images-idx3-ubyte and emnist-digits-train-images-idx3-ubyte; point samples.root" in message


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keep", [0.0, 3, 7, 11, 0.5, 0.9, -1])
def test_a_truncated_file_is_named(tmp_path, images, name, end, keep):
    root = write(tmp_path / "root", images, end=end)
    data = (root / f"{name}{end}").read_bytes()
    (root / f"{name}{end}").write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    assert refused(root, tmp_path).startswith(f"{name}{end}: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data + b"\0", "announces 6272 bytes of data, but has more"),
        (lambda data: data[:-1], "announces 6272 bytes of data, but has 6271"),
        (lambda data: b"\0\0\x0d\3" + data[4:], "begins with 0x00000d03 instead of 0x00000803"),
        (lambda data: data[3::-1] + data[4:], "begins with 0x03080000 instead of 0x00000803"),
        (lambda data: idx(DIGITS[:8]), "begins with 0x00000801 instead of 0x00000803"),
        (lambda data: b"<!DOCTYPE html>\n", "begins with 0x3c21444f instead of"),
        (lambda data: data[:4] + struct.pack(">3I", 0, 28, 28), "announces an array of [0, 28, 28], which is empty"),
        (lambda data: data[:4] + struct.pack(">3I", 8, 0, 28), "announces an array of [8, 0, 28], which is empty"),
        (lambda data: data[:4] + b"\xff" * 12, "announces an array of [4294967295, 4294967295, 4294967295], which is"),
        (lambda data: idx(np.zeros((9, 28, 28))), "has 8 labels, but train-images-idx3-ubyte has 9 images"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_that_breaks_its_word_is_named(tmp_path, images, change, message, zipped):
    root = write(tmp_path / "root", images)
    file = root / "train-images-idx3-ubyte"
    data = change(file.read_bytes())
    file.write_bytes(gzip.compress(data, 1) if zipped else data)
    assert message in refused(root, tmp_path)


def test_no_more_is_unpacked_than_is_announced(tmp_path, images):
    """A bomb: 200 MB of zeros in 200 kB, in a file that announces 8 images."""
    import tracemalloc

    root = write(tmp_path / "root", images)
    bomb = gzip.compress(bytes(2_000_000), 9)
    header = gzip.compress(idx(images[:TRAINS])[:16], 1)
    (root / "train-images-idx3-ubyte").write_bytes(header + bomb * 100)  # gzip files joined are one
    tracemalloc.start()
    assert "announces 6272 bytes of data, but has more" in refused(root, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_corrupt_gzip_is_named(tmp_path, images):
    root = write(tmp_path / "root", images, end=".gz")
    file = root / "train-images-idx3-ubyte.gz"
    data = bytearray(file.read_bytes())
    data[-6] ^= 1  # the checksum
    file.write_bytes(data)
    assert refused(root, tmp_path).startswith(f"{file.name}: cannot be read, or is truncated (CRC check failed")


@pytest.mark.parametrize(("prefix", "label"), [("", 10), ("emnist-letters-", 0), ("emnist-letters-", 27)])
def test_a_label_out_of_range_is_named(tmp_path, images, prefix, label):
    labels = np.where(np.arange(len(DIGITS)) == 3, label, 1)
    root = write(tmp_path / "root", images, labels, prefix, "test" if prefix else "t10k")
    message = refused(root, tmp_path)
    assert message.startswith(
        f"{prefix}train-labels-idx1-ubyte: record 3 (the first is 0) has the label {label}, which"
    )
