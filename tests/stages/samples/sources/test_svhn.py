"""SVHN's cropped digits: MATLAB files."""

from __future__ import annotations

import inspect
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.formats import matlab
from granularity.stages.samples.sources import svhn
from granularity.store.artifacts import Artifact
from support.sampling import make, section

TAXONOMY = Path(__file__).parents[4] / "config" / "taxonomies" / "mnist.csv"
SIZES = {"train": 12, "test": 5, "extra": 7}


@pytest.fixture
def digits():
    """split -> images [n, 32, 32, 3] and the digits in them."""
    rng = np.random.default_rng(0)
    return {
        split: (rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), (np.arange(n) + 9) % 10)
        for split, n in SIZES.items()
    }


def save(file: Path, images: np.ndarray, labels: np.ndarray, **others) -> None:
    """As http://ufldl.stanford.edu/housenumbers/ describes: X [32, 32, 3, n], y [n, 1], 10 for the digit 0."""
    y = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    savemat(file, {"X": images.transpose(1, 2, 3, 0), "y": y} | others, do_compression=True)


def write(root: Path, digits, splits=("train", "test", "extra")) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for split in splits:
        save(root / f"{split}_32x32.mat", *digits[split])
    return root


def params(root: Path, **options):
    return section(source="svhn", root=root, **{"ranks": ["label"], "target": "label"} | options)


def sample(root: Path, output: Path, **options) -> Path:
    return make(params(root, **options), output)


def refused(root: Path, tmp_path: Path, **options) -> str:
    with pytest.raises(GranularityError) as caught:
        sample(root, tmp_path / "samples", **options)
    assert not (tmp_path / "samples").exists()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message.removeprefix(f"{root}/")


def check(folder: Path, digits, splits: dict[str, str]) -> None:
    artifact = Artifact.open(folder, "samples")
    table = artifact.table("samples.parquet")
    assert table["sample_id"].tolist() == [f"{split}/{i:05d}" for split in splits for i in range(SIZES[split])]
    assert table["split"].tolist() == [name for split, name in splits.items() for _ in range(SIZES[split])]
    assert table["label"].tolist() == [str(digit) for split in splits for digit in digits[split][1]]
    reader = Images(artifact)
    for i, image in enumerate(np.concatenate([digits[split][0] for split in splits])):
        np.testing.assert_array_equal(np.asarray(reader.load(i)), image)


# ---------------------------------------------------------------- good files


def test_train_and_test(tmp_path, digits):
    root = write(tmp_path / "root", digits)
    check(sample(root, tmp_path / "samples"), digits, {"train": "train", "test": "val"})


def test_labels_are_in_numeric_order(tmp_path, digits):
    found = svhn.read(params(write(tmp_path / "root", digits)))
    assert found.frame["label"].cat.categories.tolist() == [str(digit) for digit in range(10)]
    assert inspect.isgenerator(found.images)


def test_extra_is_read_only_when_it_is_asked_for(tmp_path, digits):
    root = write(tmp_path / "root", digits)
    both = sample(root, tmp_path / "both", extra_splits=["extra"])
    check(both, digits, {"train": "train", "test": "val", "extra": "extra"})
    alone = sample(root, tmp_path / "alone", train="extra")
    check(alone, digits, {"test": "val", "extra": "train"})
    (root / "extra_32x32.mat").write_bytes(b"corrupt")
    check(sample(root, tmp_path / "neither"), digits, {"train": "train", "test": "val"})
    assert refused(root, tmp_path, val="extra").startswith("extra_32x32.mat: is truncated or no MATLAB 5 file")


def test_labels_may_be_floating_point_numbers(tmp_path, digits):
    root = write(tmp_path / "root", digits)
    images, labels = digits["train"]
    y = np.where(labels == 0, 10, labels)[:, None].astype(float)
    savemat(root / "train_32x32.mat", {"X": images.transpose(1, 2, 3, 0), "y": y})
    check(sample(root, tmp_path / "samples"), digits, {"train": "train", "test": "val"})


def test_the_taxonomy_joins(tmp_path, digits):
    root = write(tmp_path / "root", digits)
    folder = sample(root, tmp_path / "samples", ranks=["loops", "label"], target="loops", taxonomy=TAXONOMY)
    table = Artifact.open(folder).table("samples.parquet")
    assert dict(zip(table["label"], table["loops"], strict=True))["8"] == "two closed loops"


# ---------------------------------------------------------------- bad files


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_missing_file_is_named(tmp_path, digits, split):
    root = write(tmp_path / "root", digits)
    (root / f"{split}_32x32.mat").unlink()
    assert refused(root, tmp_path) == f"{split}_32x32.mat: cannot be read (No such file or directory)"


def test_an_unknown_split_is_named(tmp_path, digits):
    message = refused(write(tmp_path / "root", digits), tmp_path, extra_splits=["extras"])
    assert message == "samples.extra_splits[0]: there is no split 'extras'; SVHN has train, test, extra"


@pytest.mark.parametrize("keep", [0, 100, 128, 200, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_named(tmp_path, digits, keep):
    root = write(tmp_path / "root", digits)
    data = (root / "train_32x32.mat").read_bytes()
    (root / "train_32x32.mat").write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    assert refused(root, tmp_path).startswith("train_32x32.mat: ")


X = np.zeros((32, 32, 3, 2), np.uint8)
Y = np.ones((2, 1), np.uint8)
BAD = "is truncated or no MATLAB 5 file"
WRONG = {
    "no X": ({"y": Y}, "has no variable X"),
    "no y": ({"X": X}, "has no variable y"),
    "a label 0": ({"X": X, "y": Y * [[1], [0]]}, "record 1 (the first is 0) has the label 0, which"),
    "a label 11": ({"X": X, "y": Y * 11}, "record 0 (the first is 0) has the label 11, which"),
    "a fraction": ({"X": X, "y": Y * [[1], [1.5]]}, "record 1 (the first is 0) has the label 1.5, which"),
    "no number": ({"X": X, "y": Y * [[1], [np.nan]]}, "record 1 (the first is 0) has the label nan, which"),
    "a complex number": ({"X": X, "y": Y * 1j}, f"{BAD} (the variable y is no array of real numbers)"),
    "text": ({"X": X, "y": "12"}, f"{BAD} (the variable y is no array of real numbers)"),
    "cells": ({"X": X, "y": np.array([[1], ["a"]], object)}, f"{BAD} (the variable y is no array of"),
    "a struct": ({"X": {"a": 1}, "y": Y}, f"{BAD} (the variable X is no array of real numbers)"),
    "doubles": ({"X": X.astype(float), "y": Y}, "X is float64 [32, 32, 3, 2] and not uint8"),
    "grey images": ({"X": X[:, :, 0], "y": Y}, "X is uint8 [32, 32, 2] and not uint8"),
    "another order": ({"X": X.transpose(3, 0, 1, 2), "y": Y}, "X is uint8 [2, 32, 32, 3] and not"),
    "no images": ({"X": X[..., :0], "y": Y[:0]}, "X is uint8 [32, 32, 3, 0] and not uint8"),
    "a label too few": ({"X": X, "y": Y[:1]}, "has 2 images in X, but 1 labels in y"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_variables_are_refused(tmp_path, digits, name):
    variables, message = WRONG[name]
    root = write(tmp_path / "root", digits)
    savemat(root / "test_32x32.mat", variables)
    assert refused(root, tmp_path).startswith(f"test_32x32.mat: {message}")


@pytest.mark.parametrize(
    "data", [b"", b"\x89HDF\r\n\x1a\n" + bytes(600), b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM"]
)
def test_another_format_is_refused(tmp_path, digits, data):
    root = write(tmp_path / "root", digits)
    (root / "train_32x32.mat").write_bytes(data)
    assert refused(root, tmp_path).startswith("train_32x32.mat: is truncated or no MATLAB 5 file")


def element(kind: int, data: bytes) -> bytes:
    """A type, a length and that many bytes, up to a multiple of 8: The MathWorks, "MAT-File Format", version 5."""
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(name="X", shape=(32, 32, 3, 1), data=bytes(3072), kind=2, flags=9) -> bytes:
    """The content of a matrix; type 2 and class 9 are unsigned bytes."""
    parts = [struct.pack("<II", flags, 0), struct.pack(f"<{len(shape)}i", *shape), name.encode(), data]
    return b"".join(element(number, part) for number, part in zip((6, 5, 1, kind), parts, strict=True))


def packed(content: bytes, announced: int | None = None, kind=14, level=1) -> bytes:
    """A compressed element with a matrix in it."""
    tag = struct.pack("<II", kind, len(content) if announced is None else announced)
    data = zlib.compress(tag + content, level)
    return struct.pack("<II", 15, len(data)) + data


HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM"
LABEL = packed(matrix("y", (1, 1), b"\1"))
LIES = {
    "a type that there is not": (packed(matrix(kind=60000)), "the variable X is no array of real numbers"),
    "another type": (packed(matrix(kind=9)), "the variable X announces [32, 32, 3, 1] numbers and has 3072 bytes"),
    "an absurd shape": (packed(matrix(shape=(32, 32, 3, 2**31 - 1))), "the variable X announces [32, 32, 3, 21474"),
    "a negative shape": (packed(matrix(shape=(32, 32, -3, -1))), "the variable X announces [32, 32, -3, -1] numb"),
    "too few numbers": (
        packed(matrix(data=bytes(3071))),
        "the variable X announces [32, 32, 3, 1] numbers and has 307",
    ),
    "too few dimensions": (packed(matrix(shape=(3072,))), "the variable X has no two to eight dimensions"),
    "a name that draws on the screen": (packed(matrix(name="\x1b[31m", kind=99)), r"the variable \x1b[31m is no"),
    "4 GB in an empty element": (packed(b"", 0xFFFFFFF0), "a compressed element holds no array, or an absurdly large"),
    "1 GB in an empty element": (packed(b"", 1 << 30), "it ends within an array"),
    "text in bytes": (packed(matrix(flags=4)), "the variable X is no array of real numbers"),
    "one byte more than announced": (packed(matrix(), len(matrix()) - 1), "an array does not end where it should"),
    "no checksum": (
        struct.pack("<II", 15, len(packed(matrix())) - 12) + packed(matrix())[8:-4],
        "an array does not end",
    ),
    "a small element of eight bytes": (
        packed(struct.pack("<HH", 6, 8) + matrix()[4:]),
        "an array ends within an element",
    ),
    "no matrix in an element": (packed(matrix(), kind=2), "a compressed element holds no array"),
    "more than announced": (packed(matrix(), len(matrix()) - 8), "an array does not end where it should"),
    "less than announced": (packed(matrix(), len(matrix()) + 8), "it ends within an array"),
    "no data": (packed(matrix()[:88]), "an array ends within an element"),
    "an element of another type": (element(99, b"?"), "it has an element of type 99"),
    "a file of 4 GB": (struct.pack("<II", 14, 0xFFFFFFFF), "it ends within an array"),
    "half an element": (b"\x0e\0\0", "it ends within an element"),
    "a long element that claims to be small": (packed(b"\6\0\xff\0" + bytes(12)), "an array ends within an element"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_file_that_lies_is_refused(tmp_path, digits, name):
    data, message = LIES[name]
    root = write(tmp_path / "root", digits)
    (root / "train_32x32.mat").write_bytes(HEADER + LABEL + data)
    assert refused(root, tmp_path).startswith(f"train_32x32.mat: {BAD} ({message}")


def test_those_files_are_good_but_for_their_lies(tmp_path):
    for one in (packed(matrix()), element(14, matrix())):
        (tmp_path / "good.mat").write_bytes(HEADER + one + LABEL)
        found = matlab.load(tmp_path / "good.mat")
        assert {name: array.shape for name, array in found.items()} == {"X": (32, 32, 3, 1), "y": (1, 1)}


def test_no_more_is_inflated_than_is_announced(tmp_path):
    """A bomb: 100 MB of zeros in 100 kB, behind a tag that announces one image."""
    file = tmp_path / "bomb.mat"
    file.write_bytes(HEADER + packed(matrix() + bytes(100_000_000), len(matrix())))
    tracemalloc.start()
    with pytest.raises(GranularityError, match="an array does not end where it should"):
        matlab.load(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


def test_a_flipped_bit_is_noticed(tmp_path, digits):
    root = write(tmp_path / "root", digits)
    data = bytearray((root / "train_32x32.mat").read_bytes())
    data[10_000] ^= 4
    (root / "train_32x32.mat").write_bytes(data)
    assert refused(root, tmp_path).startswith(f"train_32x32.mat: {BAD} (Error -3 while decompressing data")


@pytest.mark.parametrize("compressed", [True, False])
def test_arrays_are_those_that_scipy_reads(tmp_path, compressed):
    """Names of all lengths, numbers of all types, and arrays that are small elements."""
    rng = np.random.default_rng(0)
    arrays = {"a": rng.integers(0, 9, (1, 3), np.uint8), "longer_name": rng.random((4, 1)), "none": np.zeros((0, 2))}
    for i, dtype in enumerate(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]):
        arrays["x" * (i + 2)] = rng.integers(0, 100, (i, 2, 3)).astype(dtype)
    savemat(tmp_path / "file.mat", arrays, do_compression=compressed)
    found, expected = matlab.load(tmp_path / "file.mat"), loadmat(tmp_path / "file.mat")
    assert found.keys() == arrays.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], strict=True)


def test_no_corruption_escapes_as_another_error(tmp_path):
    """SciPy itself ends the process (a segmentation fault) within the first dozens of these files."""
    rng = np.random.default_rng(0)
    file = tmp_path / "train_32x32.mat"
    savemat(file, {"X": X[..., :1], "y": Y[:1]})
    whole, refusals = file.read_bytes(), 0
    structure = [*range(124, 208), *range(len(whole) - 64, len(whole))]  # that is, not the pixels
    for _ in range(400):
        data = bytearray(whole)
        data[rng.choice(structure)] = rng.integers(256)
        file.write_bytes(data)
        try:
            svhn._part(file, "train")
        except GranularityError as error:
            assert "\n" not in str(error)
            refusals += 1
    assert 80 < refusals < 400
