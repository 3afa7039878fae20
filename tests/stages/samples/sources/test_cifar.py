"""CIFAR-10 and CIFAR-100 in both published forms, and pickles that are more than data."""

from __future__ import annotations

import inspect
import io
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples.formats import restricted_pickle
from granularity.stages.samples.sources import cifar
from granularity.store.artifacts import Artifact
from support.sampling import make, section

DATA = os.environ.get("GRANULARITY_DATA")
TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
HUNDRED = [f"class_{i:02d}" for i in range(100)]
TWENTY = [f"group_{i:02d}" for i in range(20)]


# ---------------------------------------------------------------- the publisher's files
# Layouts: https://www.cs.toronto.edu/~kriz/cifar.html. The pickles there were written by Python 2 (cPickle, protocol
# 2), so a string is the instruction BINSTRING and an array's class is numpy.core.multiarray's.


def python2_pickle(value) -> bytes:
    """What cPickle of Python 2 writes with protocol 2; bytes stand for its strings."""
    out = io.BytesIO()
    count = 0

    def put() -> None:
        nonlocal count
        count += 1
        out.write(b"q" + bytes([count]) if count < 256 else b"r" + struct.pack("<I", count))

    def string(text: bytes) -> None:
        out.write(b"U" + bytes([len(text)]) if len(text) < 256 else b"T" + struct.pack("<i", len(text)))
        out.write(text)
        put()

    def number(n: int) -> None:
        small, short = 0 <= n < 256, 0 <= n < 65536
        out.write(b"K" + bytes([n]) if small else b"M" + struct.pack("<H", n) if short else b"J" + struct.pack("<i", n))

    def save(item) -> None:
        match item:
            case bytes():
                string(item)
            case int():
                number(item)
            case list() | dict():
                out.write(b"]" if isinstance(item, list) else b"}")
                put()
                flat = item if isinstance(item, list) else [x for pair in item.items() for x in pair]
                out.write(b"(")
                for x in flat:
                    save(x)
                out.write(b"e" if isinstance(item, list) else b"u")
            case np.ndarray():
                out.write(b"cnumpy.core.multiarray\n_reconstruct\n")
                put()
                out.write(b"cnumpy\nndarray\n")
                put()
                out.write(b"K\x00\x85")
                put()
                string(b"b")
                out.write(b"\x87")
                put()
                out.write(b"R")
                put()
                out.write(b"(K\x01")
                for length in item.shape:
                    number(length)
                out.write({1: b"\x85", 2: b"\x86"}[item.ndim])
                put()
                out.write(b"cnumpy\ndtype\n")
                put()
                string(b"u1")
                out.write(b"K\x00K\x01\x87")
                put()
                out.write(b"R")
                put()
                out.write(b"(K\x03")
                string(b"|")
                out.write(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t")
                put()
                fortran = item.flags.f_contiguous and not item.flags.c_contiguous
                out.write(b"b" + (b"\x88" if fortran else b"\x89"))
                string(item.tobytes("F" if fortran else "C"))
                out.write(b"t")
                put()
                out.write(b"b")

    out.write(b"\x80\x02")
    save(value)
    out.write(b".")
    return out.getvalue()


def python3_pickle(protocol: int):
    return lambda value: pickle.dumps(value, protocol=protocol)


def planes(images: np.ndarray) -> np.ndarray:
    """[n, 32, 32, 3] -> [n, 3072]: all red, all green, all blue."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), 3072)


def batches(images: np.ndarray, labels: np.ndarray, tests: int):
    """Split images into five training batches and the test batch."""
    parts = np.array_split(np.arange(len(images) - tests), 5)
    parts.append(np.arange(len(images) - tests, len(images)))
    for name, rows in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], parts, strict=True):
        yield name, planes(images[rows]), labels[rows]


def write_ten(root: Path, images: np.ndarray, labels: np.ndarray, tests: int, form="bin", dumps=python2_pickle) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, pixels, codes in batches(images, labels, tests):
        if form == "bin":
            records = np.concatenate([codes[:, None].astype(np.uint8), pixels], axis=1)
            (root / f"{name}.bin").write_bytes(records.tobytes())
        else:
            batch = {
                b"batch_label": b"a batch",
                b"labels": codes.tolist(),
                b"data": np.ascontiguousarray(pixels),
                b"filenames": [b"a_%d.png" % i for i in range(len(codes))],
            }
            (root / name).write_bytes(dumps(batch))
    if form == "bin":
        (root / "batches.meta.txt").write_text("\n".join(TEN) + "\n\n")
    else:
        names = [name.encode() for name in TEN]
        meta = {b"num_cases_per_batch": 10000, b"label_names": names, b"num_vis": 3072}
        (root / "batches.meta").write_bytes(dumps(meta))
    return root


def write_hundred(root: Path, images, coarse, fine, tests: int, form="bin", dumps=python2_pickle) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    rows = {"train": slice(0, len(images) - tests), "test": slice(len(images) - tests, None)}
    for name, part in rows.items():
        pixels = planes(images[part])
        if form == "bin":
            records = np.concatenate([coarse[part, None], fine[part, None], pixels], axis=1).astype(np.uint8)
            (root / f"{name}.bin").write_bytes(records.tobytes())
        else:
            batch = {b"fine_labels": fine[part].tolist(), b"coarse_labels": coarse[part].tolist(), b"data": pixels}
            (root / name).write_bytes(dumps(batch))
    if form == "bin":
        (root / "coarse_label_names.txt").write_text("\r\n".join(TWENTY) + "\r\n")
        (root / "fine_label_names.txt").write_text("\n".join(HUNDRED) + "\n")
    else:
        fine_names, coarse_names = ([name.encode() for name in names] for names in (HUNDRED, TWENTY))
        meta = {b"fine_label_names": fine_names, b"coarse_label_names": coarse_names}
        (root / "meta").write_bytes(dumps(meta))
    return root


@pytest.fixture(scope="module")
def small():
    """25 images and two labels each: every class lies in one superclass."""
    rng = np.random.default_rng(0)
    fine = rng.integers(0, 100, 25)
    fine[0], fine[1] = 99, 0
    return rng.integers(0, 256, (25, 32, 32, 3), dtype=np.uint8), np.arange(25) % 10, fine // 5, fine


def sample(root: Path, output: Path, *ranks: str) -> Path:
    ranks = ranks or ("class",)
    return make(section(source="cifar", root=root, ranks=list(ranks), target=ranks[0]), output)


def refused(root: Path, tmp_path: Path) -> str:
    """The message with which a folder is refused."""
    with pytest.raises(GranularityError) as caught:
        sample(root, tmp_path / "samples")
    assert not (tmp_path / "samples").exists()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message.removeprefix(f"{root}/")


def check(folder: Path, images: np.ndarray, labels: dict[str, list[str]], tests: int) -> None:
    artifact = Artifact.open(folder, "samples")
    table = artifact.table("samples.parquet")
    trains = len(images) - tests
    ids = [f"train/{i:05d}" for i in range(trains)] + [f"test/{i:05d}" for i in range(tests)]
    assert table["sample_id"].tolist() == ids
    assert table["split"].tolist() == ["train"] * trains + ["val"] * tests
    for rank, names in labels.items():
        assert table[rank].tolist() == names
    reader = Images(artifact)
    for i, image in enumerate(images):
        np.testing.assert_array_equal(np.asarray(reader.load(i)), image)


# ---------------------------------------------------------------- good files


def test_a_python2_pickle_is_what_python_takes_it_for(small):
    """So that what the other tests write is what cPickle would."""
    value = {b"data": planes(small[0]), b"labels": [1, 300, 70000, -1], b"long": [b"x" * 300] * 300, b"none": {}}
    taken = pickle.loads(python2_pickle(value), encoding="bytes")
    np.testing.assert_array_equal(taken.pop(b"data"), value.pop(b"data"))
    assert taken == value


FORMS = [("bin", None), ("py", python2_pickle), *(("py", python3_pickle(protocol)) for protocol in range(5))]
FORM_NAMES = ["binary", "python2", *(f"protocol{protocol}" for protocol in range(5))]


@pytest.mark.parametrize(("form", "dumps"), FORMS, ids=FORM_NAMES)
def test_cifar10(tmp_path, small, form, dumps):
    images, labels, _, _ = small
    root = write_ten(tmp_path / "root", images, labels, 5, form, dumps)
    check(sample(root, tmp_path / "samples"), images, {"class": [TEN[i] for i in labels]}, 5)


@pytest.mark.parametrize(("form", "dumps"), FORMS[:2], ids=FORM_NAMES[:2])
def test_cifar100_has_superclasses(tmp_path, small, form, dumps):
    images, _, coarse, fine = small
    root = write_hundred(tmp_path / "root", images, coarse, fine, 5, form, dumps)
    folder = sample(root, tmp_path / "samples", "superclass", "class")
    check(folder, images, {"superclass": [TWENTY[i] for i in coarse], "class": [HUNDRED[i] for i in fine]}, 5)


def test_classes_are_in_the_publishers_order_and_all_known(tmp_path, small):
    root = write_hundred(tmp_path / "root", *(small[i] for i in (0, 2, 3)), 5)
    frame = cifar.read(section(source="cifar", root=root, ranks=["class"], target="class")).frame
    assert frame["class"].cat.categories.tolist() == HUNDRED
    assert frame["superclass"].cat.categories.tolist() == TWENTY
    assert frame.columns.tolist() == ["sample_id", "split", "superclass", "class"]  # coarse to fine


@pytest.mark.parametrize("folder", ["cifar-10-batches-bin", "cifar-10-batches-py"])
def test_root_may_be_the_parent_of_the_unpacked_folder(tmp_path, small, folder):
    images, labels, _, _ = small
    write_ten(tmp_path / "root" / folder, images, labels, 5, folder.split("-")[-1])
    check(sample(tmp_path / "root", tmp_path / "samples"), images, {"class": [TEN[i] for i in labels]}, 5)


def test_an_array_in_columns_first_order_is_the_same(tmp_path, small):
    images, _, coarse, fine = small
    write_hundred(tmp_path / "root", images, coarse, fine, 5, "py")
    pixels = np.asfortranarray(planes(images[:20]))
    batch = {b"data": pixels, b"fine_labels": fine[:20].tolist(), b"coarse_labels": coarse[:20].tolist()}
    (tmp_path / "root" / "train").write_bytes(python2_pickle(batch))
    check(sample(tmp_path / "root", tmp_path / "samples"), images, {"class": [HUNDRED[i] for i in fine]}, 5)


def test_the_taxonomy_joins(tmp_path, small):
    root = write_ten(tmp_path / "root", small[0], small[1], 5)
    ranks, file = ["kind", "group", "class"], Path(__file__).parents[4] / "config" / "taxonomies" / "cifar10.csv"
    params = section(source="cifar", root=root, ranks=ranks, target="kind", taxonomy=file)
    make(params, tmp_path / "samples")
    table = Artifact.open(tmp_path / "samples").table("samples.parquet")
    assert table[ranks].iloc[0].tolist() == ["vehicle", "aircraft", "airplane"]
    assert table[ranks].iloc[3].tolist() == ["animal", "mammal", "cat"]


def test_images_are_encoded_one_at_a_time(tmp_path, small):
    root = write_ten(tmp_path / "root", small[0], small[1], 5)
    assert inspect.isgenerator(cifar.read(section(source="cifar", root=root, ranks=["class"], target="class")).images)


@pytest.mark.skipif(DATA is None, reason="needs real images: set GRANULARITY_DATA (see docs/development.md)")
def test_both_forms_of_real_images_are_the_same(tmp_path):
    import pyarrow.parquet as pq

    from granularity.data.images import decode

    table = pq.read_table(Path(DATA, "cifar10/test.parquet")).slice(0, 200)
    images = np.stack([np.asarray(decode(image["bytes"])) for image in table["img"].to_pylist()])
    labels = np.array(table["label"])
    for form in ("bin", "py"):
        root = write_ten(tmp_path / form, images, labels, 40, form)
        check(sample(root, tmp_path / f"samples {form}"), images, {"class": [TEN[i] for i in labels]}, 40)
    first, second = (Artifact.open(tmp_path / f"samples {form}") for form in ("bin", "py"))
    assert first.table("samples.parquet").equals(second.table("samples.parquet"))


# ---------------------------------------------------------------- bad files


def test_two_forms_ask_for_one(tmp_path, small):
    images, labels, _, _ = small
    write_ten(tmp_path / "root" / "cifar-10-batches-bin", images, labels, 5)
    write_ten(tmp_path / "root" / "cifar-10-batches-py", images, labels, 5, "py")
    message = refused(tmp_path / "root", tmp_path)
    assert "cifar-10-batches-bin" in message and "cifar-10-batches-py" in message and "point samples.root at" in message


def test_neither_form_names_what_is_looked_for(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cifar-10-python.tar.gz").write_bytes(b"not unpacked")
    assert "holds no CIFAR; point samples.root at one of" in refused(tmp_path / "root", tmp_path)
    assert "holds no CIFAR" in refused(tmp_path / "nowhere", tmp_path)


@pytest.mark.parametrize("form", ["bin", "py"])
@pytest.mark.parametrize("name", ["batches.meta", "data_batch_3", "test_batch"])
def test_a_missing_file_is_named(tmp_path, small, form, name):
    root = write_ten(tmp_path / "root", small[0], small[1], 5, form)
    name += {"bin": ".bin", "py": ""}[form] if name != "batches.meta" else {"bin": ".txt", "py": ""}[form]
    (root / name).unlink()
    assert refused(root, tmp_path) == f"{name}: cannot be read (No such file or directory)"


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b""])
def test_a_binary_file_of_another_length_is_named(tmp_path, small, change):
    root = write_ten(tmp_path / "root", small[0], small[1], 5)
    file = root / "data_batch_2.bin"
    file.write_bytes(change(file.read_bytes()))
    assert refused(root, tmp_path).startswith(f"data_batch_2.bin: has {file.stat().st_size} bytes, which is no whole")


def test_a_label_out_of_range_is_named(tmp_path, small):
    images, labels, _, _ = small
    binary = write_ten(tmp_path / "binary", images, labels, 5)
    data = bytearray((binary / "data_batch_2.bin").read_bytes())
    data[2 * 3073] = 10
    (binary / "data_batch_2.bin").write_bytes(data)
    assert refused(binary, tmp_path).startswith("data_batch_2.bin: record 2 (the first is 0) has the class 10, which")
    for value in (10, -1, 2**70, True, None, "cat", 1.0):
        batch = {b"data": planes(images[:3]), b"labels": [0, value, 1]}
        pickled = write_ten(tmp_path / "pickled", images, labels, 5, "py")
        (pickled / "data_batch_4").write_bytes(pickle.dumps(batch, protocol=2))
        assert refused(pickled, tmp_path).startswith("data_batch_4: record 1 (the first is 0) has the class")


def test_a_coarse_label_in_the_place_of_the_fine_one_is_noticed(tmp_path, small):
    images, _, coarse, fine = small
    assert "record" in refused(write_hundred(tmp_path / "swapped", images, fine, coarse, 5), tmp_path)
    other, fine = coarse.copy(), fine.copy()
    fine[24], other[24] = fine[3], (coarse[3] + 1) % 20
    root = write_hundred(tmp_path / "other file", images, other, fine, 5)
    assert refused(root, tmp_path).startswith("test.bin: record 4 (the first is 0) has superclass")
    fine[7], other[7] = fine[2], (coarse[2] + 1) % 20
    root = write_hundred(tmp_path / "same file", images, other, fine, 5)
    assert refused(root, tmp_path).startswith("train.bin: record 7 (the first is 0) has superclass")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n".join(TEN[:9]), "names 9 classes, not 10"),
        ("\n".join([*TEN[:9], "airplane"]), "names 9 classes, not 10"),
        ("", "names 0 classes, not 10"),
        ("\n".join(TEN).replace("cat", "chât"), "is no ASCII text"),
    ],
)
def test_wrong_names_of_classes_are_refused(tmp_path, small, text, message):
    root = write_ten(tmp_path / "root", small[0], small[1], 5)
    (root / "batches.meta.txt").write_text(text)
    assert refused(root, tmp_path).startswith(f"batches.meta.txt: {message}")


@pytest.mark.parametrize("meta", [{b"label_names": 3}, {}, {b"label_names": [b"cat", 1] * 5}, {b"label_names": [b"a"]}])
def test_wrong_names_in_a_pickle_are_refused(tmp_path, small, meta):
    root = write_ten(tmp_path / "root", small[0], small[1], 5, "py")
    (root / "batches.meta").write_bytes(python2_pickle(meta))
    assert refused(root, tmp_path).startswith(("batches.meta: has no list", "batches.meta: names 1 classes"))


@pytest.mark.parametrize(
    "batch",
    [
        {b"labels": [1, 2]},
        {b"data": b"pixels", b"labels": [1, 2]},
        {b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]},
        {b"data": np.zeros(2 * 3072, np.uint8), b"labels": [1, 2]},
        {b"data": np.zeros((0, 3072), np.uint8), b"labels": []},
        {b"data": np.zeros((2, 3072), np.uint8)},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": 1},
    ],
)
def test_a_pickle_of_another_shape_is_refused(tmp_path, small, batch):
    root = write_ten(tmp_path / "root", small[0], small[1], 5, "py")
    (root / "data_batch_5").write_bytes(python2_pickle(batch))
    assert refused(root, tmp_path).startswith(("data_batch_5: has no", "data_batch_5: holds no images"))


# ---------------------------------------------------------------- pickles that are more than data


class Calls:
    """An object whose pickle calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.result = (function, arguments)

    def __reduce__(self):
        return self.result


def short(text: str) -> bytes:
    """The instruction that pushes a text, protocol 4."""
    return b"\x8c" + bytes([len(text)]) + text.encode()


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
UINT8 = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
EVIL = {
    "os.system": (lambda file: pickle.dumps(Calls(os.system, f"touch {file}"), 2), "asks for 'posix.system'"),
    "os.system, protocol 0": (lambda file: f"cos\nsystem\n(S'touch {file}'\ntR.".encode(), "asks for 'os.system'"),
    "os.system, STACK_GLOBAL": (
        lambda file: b"\x80\x04" + short("os") + short("system") + b"\x93" + short(f"touch {file}") + b"\x85R.",
        "asks for 'os.system'",
    ),
    "os.system, INST": (lambda file: f"(S'touch {file}'\nios\nsystem\n.".encode(), "asks for 'os.system'"),
    "builtins.eval": (
        lambda file: pickle.dumps({b"data": Calls(eval, f"open({str(file)!r}, 'w')")}, 4),
        "asks for 'builtins.eval'",
    ),
    "as a key": (lambda file: b"}cos\nsystem\nK\x01s.", "asks for 'os.system'"),
    "numpy.load": (
        lambda file: pickle.dumps({"data": Calls(np.load, str(file), None, True)}, 2),
        "asks for 'numpy.load'",
    ),
    "numpy.testing": (
        lambda file: b"cnumpy.testing._private.utils\nrunstring\n(S'1'\n}tR.",
        "asks for 'numpy.testing._private.utils.runstring'",
    ),
    "an attribute of what is admitted": (
        lambda file: b"\x80\x04" + short("numpy") + short("ndarray.tofile") + b"\x93.",
        "asks for 'numpy.ndarray.tofile'",
    ),
    "two names in one": (lambda file: b"cnumpy ndarray\nos.system\n.", "asks for 'numpy.ndarray.os.system'"),
    "a name of megabytes": (lambda file: b"cos\n" + b"x" * 2_000_000 + b"\n.", "asks for 'os.xxxx"),
    "a name that draws on the screen": (lambda file: b"cos\n\x1b[31mred\n.", r"asks for 'os.\x1b[31mred'"),
    "a call of an array": (lambda file: ARRAY + b"(tR.", "has another object where a name should be"),
    "a call of a text": (lambda file: b"S'os.system'\n(tR.", "has another object where a name should be"),
    "a nested call": (
        lambda file: pickle.dumps({"data": Calls(np.dtype, Calls(os.system, f"touch {file}"))}, 2),
        "asks for 'posix.system'",
    ),
    "an array of objects": (
        lambda file: pickle.dumps({b"data": np.array([Calls(os.system, f"touch {file}")], object)}, 2),
        "holds an array of dtype 'O8'",
    ),
    "a dtype that becomes one of objects": (
        lambda file: b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01O(U\x01atNNKAKAKAtb.",
        "sets the state",
    ),
    "a dtype with fields": (
        lambda file: b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NU\x01aN}K\x08K\x01K\x1btb.",
        "sets the state",
    ),
    "a state for a list": (lambda file: b"](U\x01atb.", "sets the state"),
    "a state for a name": (lambda file: b"cnumpy\ndtype\n}U\x0c__setstate__K\x01sb.", "sets the state"),
    "a second state for an array": (
        lambda file: ARRAY + b"(K\x01(K\x01t" + UINT8 + b"\x89U\x01atb(K\x01(K\x02t" + UINT8 + b"\x89U\x02abtb.",
        "sets the state",
    ),
    "a subclass of arrays": (
        lambda file: b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(K\x00tU\x01btR.",
        "calls 'numpy.core.multiarray _reconstruct' in a way",
    ),
    "an array made at once, of 8 TB": (
        lambda file: b"cnumpy\nndarray\n(\x8a\x06\x00\x00\x00\x00\x00\x08\x85tR.",
        "calls 'numpy ndarray' in a way",
    ),
    "an array that claims 4 GB": (
        lambda file: b"}U\x04data" + ARRAY + b"(K\x01(\x8a\x05\x00\x00\x00\x00\x01t" + UINT8 + b"\x89U\x01atbs.",
        "holds an array of shape (4294967296,), but 1 bytes for it",
    ),
    "an array of a negative shape": (
        lambda file: ARRAY + b"(K\x01(J\xff\xff\xff\xffJ\xff\xff\xff\xfft" + UINT8 + b"\x89U\x01atb.",
        "holds an array of an impossible shape",
    ),
    "a codec that inflates": (
        lambda file: b"c_codecs\nencode\n(S'aaaa'\nS'zlib'\ntR.",
        "calls '_codecs encode' in a way",
    ),
    "the same text as bytes without end": (
        lambda file: b"S'" + b"a" * 1000 + b"'\np0\n(" + b"c_codecs\nencode\n(g0\nS'latin1'\ntR" * 100 + b"l.",
        "turns the same text into bytes again and again",
    ),
    "a string that claims 2 GB": (lambda file: b"T\xff\xff\xff\x7fabc.", "is truncated or no pickle (expected 2147"),
    "bytes that claim 4 GB": (lambda file: b"B\xff\xff\xff\xffabc.", "is truncated or no pickle (expected 4294"),
    "bytes that claim 8 EB": (lambda file: b"\x8e" + b"\xff" * 7 + b"\x7fabc.", "is truncated or no pickle"),
    "a memo of 4,294,967,295 places": (lambda file: b"K\x01r\xff\xff\xff\xff.", "has another object where a dict"),
    "a persistent id": (lambda file: b"Pos.system\n.", "has the instruction PERSID"),
    "an extension": (lambda file: b"\x82\x01.", "has the instruction EXT1"),
    "a new object": (lambda file: b"cnumpy\nndarray\n)\x81.", "has the instruction NEWOBJ"),
    "a truncated one": (lambda file: b"\x80\x02}U\x04dat", "is truncated or no pickle (expected 4 bytes"),
    "one without an end": (lambda file: b"}", "is truncated or no pickle (pickle exhausted"),
    "nothing": (lambda file: b"", "is truncated or no pickle"),
    "too few things": (lambda file: b"R.", "is truncated or no pickle (IndexError)"),
    "an unknown memo": (lambda file: b"h\x07.", "is truncated or no pickle (KeyError)"),
    "no dictionary": (lambda file: pickle.dumps([1]), "has another object where a dict should be"),
    "keys that are no text": (lambda file: pickle.dumps({(1,): 2}), "has a dictionary whose keys are no text"),
    "text": (lambda file: b"<!DOCTYPE html>\n", "is truncated or no pickle"),
}


@pytest.mark.parametrize(("name", "place"), [(name, "data_batch_1") for name in EVIL] + [("os.system", "batches.meta")])
def test_a_pickle_that_is_more_than_data_does_nothing(tmp_path, small, name, place):
    make, message = EVIL[name]
    proof = tmp_path / "proof"
    root = write_ten(tmp_path / "root", small[0], small[1], 5, "py")
    (root / place).write_bytes(make(proof))
    assert refused(root, tmp_path).startswith(f"{place}: {message}")
    assert not proof.exists()


@pytest.mark.parametrize("name", [name for name in EVIL if name.startswith(("os.system", "builtins", "a nested"))])
def test_those_pickles_do_something_when_unpickled(tmp_path, name):
    with pytest.raises((TypeError, pickle.UnpicklingError)) if "nested" in name else open(os.devnull):
        pickle.loads(EVIL[name][0](tmp_path / "proof"))
    assert (tmp_path / "proof").exists()


def test_a_pickle_of_more_than_512_mb_is_not_read(tmp_path, small):
    root = write_ten(tmp_path / "root", small[0], small[1], 5, "py")
    os.truncate(root / "data_batch_1", (512 << 20) + 1)  # a hole
    assert refused(root, tmp_path).startswith("data_batch_1: is larger than 536,870,912 bytes")


def test_a_pickle_of_endless_instructions_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(restricted_pickle, "MAX_INSTRUCTIONS", 1000)
    (tmp_path / "bomb").write_bytes(b"]" * 2000 + b".")
    with pytest.raises(GranularityError, match="has more than 1000 instructions"):
        restricted_pickle.load(tmp_path / "bomb")


def test_no_corruption_of_a_pickle_escapes_as_another_error(tmp_path, small):
    rng = np.random.default_rng(0)
    whole = python2_pickle({b"data": small[0][:1, :2, :2].reshape(1, 12), b"labels": [1, 2], b"filenames": [b"a"] * 3})
    refusals = 0
    for i in range(500):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 2):
            data[place] = rng.integers(256)
        (tmp_path / "data").write_bytes(data[: rng.integers(1, len(data) + 1)] if i % 3 == 0 else data)
        try:
            restricted_pickle.load(tmp_path / "data")
        except GranularityError as error:
            assert "\n" not in str(error)
            refusals += 1
    assert 150 < refusals < 500
