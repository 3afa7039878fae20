"""Bad input files by the hundred: each costs one line that names the file, little time and memory, and leaves nothing.

Data sets in folders, tables and Parquet files; WordNet, taxonomies, encoders and their weights; and artifacts that
are sound by their manifest, but hold what no stage writes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from granularity import cli
from support import tiny_chain
from support.refusals import CHAIN, UNSAFE, as_samples, harms, pickled, picture, reader, refused
from support.tiny_chain import harmed, rewrite

# ---------------------------------------------------------------- images in folders


def folder_of_images(root: Path, count: int = 10) -> Path:
    for i in range(count):
        file = root / ("cat" if i % 2 else "dog") / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(i))
    return root


def bomb() -> bytes:
    """A PNG of 60,000 x 60,000 pixels in a kilobyte."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b"")


IMAGE_HARMS = {
    **harms(picture(1), "images"),
    "a bomb": bomb(),
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(pwned) (w) file\n",
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "a pickle": b"cposix\nsystem\n(S'touch pwned'\ntR.",
}
del IMAGE_HARMS["truncated at the end"]  # all its pixels are still there


@pytest.mark.parametrize("harm", IMAGE_HARMS)
def test_images_in_folders(harm, tmp_path):
    root = folder_of_images(tmp_path / "data")
    bad = root / "cat" / "3.png"
    bad.write_bytes(IMAGE_HARMS[harm])
    options = {"source": "folder", "root": root, "ranks": ["species"], "target": "species"}
    refused("images, looked at", as_samples(**options, check_images="fail"), "cat/3.png", tmp_path)
    samples = tmp_path / "samples"
    cli.app([*as_samples(**options), "--output", str(samples)], standalone_mode=False)
    refused("images, decoded", ["pixels", "--samples", samples, "--options", '{"size": 4}'], bad, tmp_path)
    bad.write_bytes(picture(99))
    message = refused("images, changed", ["pixels", "--samples", samples, "--options", '{"size": 4}'], bad, tmp_path)
    assert "has changed since" in message


def a_pipe(root):
    os.mkfifo(root / "cat" / "pipe.png")
    return root / "cat" / "pipe.png"


def a_link_to_nothing(root):
    (root / "cat" / "gone.png").symlink_to(root / "nothing.png")
    return root / "cat" / "gone.png"


def a_link_to_itself(root):
    (root / "cat" / "loop.png").symlink_to("loop.png")
    return root / "cat" / "loop.png"


def a_link_to_the_folder_above(root):
    (root / "cat" / "up").symlink_to(root)
    return root / "cat" / "up"


def an_image_beside_the_classes(root):
    (root / "lone.png").write_bytes(picture(50))
    return root / "lone.png"


def an_image_too_deep(root):
    (root / "cat" / "black").mkdir()
    (root / "cat" / "black" / "1.png").write_bytes(picture(51))
    return root / "cat" / "black" / "1.png"


def a_name_that_is_no_text(root):
    Path(os.fsdecode(os.fsencode(root / "cat") + b"/b\xff.png")).write_bytes(picture(52))
    return "b\\udcff.png"


def no_images(root):
    shutil.rmtree(root)
    root.mkdir()
    return root


def one_image(root):
    no_images(root)
    (root / "cat").mkdir()
    (root / "cat" / "1.png").write_bytes(picture(1))
    return "conditions.train_size"


def a_file_for_a_folder(root):
    shutil.rmtree(root)
    root.write_bytes(b"")
    return root


def a_device(root):
    (root / "cat" / "zero.png").symlink_to("/dev/zero")
    return root / "cat" / "zero.png"


def a_folder_called_like_an_image(root):
    no_images(root)
    (root / "cat" / "1.png").mkdir(parents=True)
    return root


ODD_FOLDERS = [a_pipe, a_link_to_nothing, a_link_to_itself, a_link_to_the_folder_above, an_image_beside_the_classes]
ODD_FOLDERS += [an_image_too_deep, a_name_that_is_no_text, no_images, one_image, a_file_for_a_folder, a_device]
ODD_FOLDERS += [a_folder_called_like_an_image]


@pytest.mark.parametrize("checksums", ["content", "size"])
@pytest.mark.parametrize("odd", ODD_FOLDERS, ids=lambda odd: odd.__name__)
def test_odd_folders(odd, checksums, tmp_path):
    root = folder_of_images(tmp_path / "data")
    named = odd(root)
    options = {"source": "folder", "root": root, "ranks": ["species"], "target": "species", "checksums": checksums}
    refused("folders", as_samples(**options), named, tmp_path)


# ---------------------------------------------------------------- tables and Parquet


GOOD_TABLE = "path,split,kind,species\n" + "".join(
    f"{i}.png,{'val' if i > 5 else 'train'},k{i % 2},s{i % 4}\n" for i in range(10)
)


def table_of_images(tmp_path: Path) -> dict:
    root = tmp_path / "data"
    root.mkdir()
    for i in range(10):
        (root / f"{i}.png").write_bytes(picture(i))
    return {"source": "table", "root": root, "labels": "t.csv", "ranks": ["kind", "species"], "target": "kind"}


ODD_TABLES = {
    "a path out": GOOD_TABLE.replace("3.png", "../3.png"),
    "an absolute path": GOOD_TABLE.replace("3.png", "/etc/passwd"),
    "a path in and out": GOOD_TABLE.replace("3.png", "a/../../3.png"),
    "no path": GOOD_TABLE.replace("3.png", ""),
    "a path twice": GOOD_TABLE.replace("3.png", "4.png"),
    "no such image": GOOD_TABLE.replace("3.png", "33.png"),
    "a folder for an image": GOOD_TABLE.replace("3.png", "."),
    "no label": GOOD_TABLE.replace("s3\n", "\n", 1),
    "no split": GOOD_TABLE.replace("3.png,train", "3.png,"),
    "too many fields": GOOD_TABLE.replace("k1,s3", "k1,s3,more"),
    "too few fields": GOOD_TABLE.replace("k1,s3", "k1"),
    "a quote that never ends": GOOD_TABLE.replace("k1,s3", '"k1,s3'),
    "no header": GOOD_TABLE.split("\n", 1)[1],
    "a column twice": GOOD_TABLE.replace("kind,species", "kind,kind"),
    "no column of paths": GOOD_TABLE.replace("path", "where"),
    "only a header": GOOD_TABLE.split("\n", 1)[0] + "\n",
    "an empty line": "\n",
    "another separator": GOOD_TABLE.replace(",", ";"),
    "latin-1": GOOD_TABLE.replace("k1", "ü").encode("latin-1"),
    "UTF-16": GOOD_TABLE.encode("utf-16"),
    "null bytes": GOOD_TABLE.replace("3.png", "3\0.png"),
    "a rank that is a label's column no more": GOOD_TABLE.replace("species", "genus"),
    "no training split": GOOD_TABLE.replace("train", "learn"),
    "distribution": GOOD_TABLE.replace("split", "distribution"),
    **{name: data for name, data in harms(GOOD_TABLE.encode(), "tables").items() if "truncated" not in name},
    "truncated in a row": GOOD_TABLE[:-8],
}
ODD_TABLES.pop("a hole in the middle")  # null bytes are characters of a name there


@pytest.mark.parametrize("odd", ODD_TABLES)
def test_odd_tables(odd, tmp_path):
    options = table_of_images(tmp_path)
    data = ODD_TABLES[odd]
    file = options["root"] / "t.csv"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    names = {"no such image": "33.png", "a folder for an image": "data", "no training split": "samples.train"}
    names["a rank that is a label's column no more"] = "samples.ranks"
    refused("tables", as_samples(**options), names.get(odd, file), tmp_path)


def parquet_table(columns: dict) -> bytes:
    stream = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue().to_pybytes()


PATHS = [f"{i}.png" for i in range(10)]
GOOD_COLUMNS = {"path": PATHS, "kind": [f"k{i % 2}" for i in range(10)], "species": [f"s{i % 4}" for i in range(10)]}
ODD_COLUMNS = {
    "a path that is null": GOOD_COLUMNS | {"path": [None, *PATHS[1:]]},
    "paths that are numbers": GOOD_COLUMNS | {"path": list(range(10))},
    "paths that are bytes": GOOD_COLUMNS | {"path": [name.encode() for name in PATHS]},
    "a path out": GOOD_COLUMNS | {"path": ["../0.png", *PATHS[1:]]},
    "labels that are null": GOOD_COLUMNS | {"species": [None] * 10},
    "a label that is null": GOOD_COLUMNS | {"species": [None, *GOOD_COLUMNS["species"][1:]]},
    "labels that are fractions": GOOD_COLUMNS | {"species": [0.5] * 10},
    "labels that are lists": GOOD_COLUMNS | {"species": [["a"]] * 10},
    "labels that are dates": GOOD_COLUMNS | {"species": [pd.Timestamp("2020-02-02")] * 10},
    "no rows": {name: values[:0] for name, values in GOOD_COLUMNS.items()},
    "no columns": {},
}
ODD_PARQUET = {name: parquet_table(columns) for name, columns in ODD_COLUMNS.items()}
ODD_PARQUET |= harms(parquet_table(GOOD_COLUMNS), "parquet tables")


@pytest.mark.parametrize("odd", ODD_PARQUET)
def test_odd_parquet_tables(odd, tmp_path):
    options = table_of_images(tmp_path) | {"labels": "t.parquet"}
    (options["root"] / "t.parquet").write_bytes(ODD_PARQUET[odd])
    named = options["root"] / "t.parquet"
    named = {"paths that are numbers": options["root"] / "0"}.get(odd, named)
    refused("tables", as_samples(**options), "samples.ranks" if "labels that are" in odd else named, tmp_path)


def hub_table(count: int = 12, names=("a", "b", "c"), **over) -> bytes:
    struct_type = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    images = over.get("images", [{"bytes": picture(i), "path": None} for i in range(count)])
    labels = over.get("labels", [i % 3 for i in range(count)])
    columns = {"img": pa.array(images, over.get("type", struct_type)), "label": pa.array(labels)}
    table = pa.table(columns)
    info = {"info": {"features": {"label": {"_type": "ClassLabel", "names": list(names)}}}}
    text = over.get("metadata", json.dumps(info))
    stream = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({"huggingface": text}), stream)
    return stream.getvalue().to_pybytes()


NO_BYTES = [{"bytes": None, "path": "x.png"}] * 12
ODD_HUB = {
    "no bytes": hub_table(images=NO_BYTES),
    "no image": hub_table(images=[None] * 12),
    "images of text": hub_table(images=["x"] * 12, type=pa.string()),
    "a label too many": hub_table(labels=[9] * 12),
    "a label below": hub_table(labels=[-7] * 12),
    "no label": hub_table(labels=[None, *[0] * 11]),
    "fractions for labels": hub_table(labels=[0.5] * 12),
    "a class twice": hub_table(names=("a", "a", "b")),
    "no classes": hub_table(names=()),
    "metadata that are no JSON": hub_table(metadata="{"),
    "metadata of another form": hub_table(metadata='{"info": []}'),
    "metadata that are a number": hub_table(metadata="3"),
    "no rows": hub_table(count=0, images=[], labels=pa.array([], pa.int64())),
    **harms(hub_table(), "hub"),
}


@pytest.mark.parametrize("odd", ODD_HUB)
def test_odd_parquet_images(odd, tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    (root / "train.parquet").write_bytes(ODD_HUB[odd])
    options = {"source": "parquet", "root": root, "ranks": ["label"], "target": "label"}
    refused("Parquet", as_samples(**options), "samples.ranks" if "fractions" in odd else "train.parquet", tmp_path)


# ---------------------------------------------------------------- WordNet and taxonomies


def noun(offset: int, word: str, *above: int) -> str:
    pointers = "".join(f" @ {one:08d} n 0000" for one in above)
    return f"{offset:08d} 03 n 01 {word} 0 {len(above):03d}{pointers} | a gloss  \n"


LIVING, CAT, DOG = 4258, 100, 200
GOOD_WORDNET = noun(LIVING, "living_thing") + noun(CAT, "cat", LIVING) + noun(DOG, "dog", LIVING)
ODD_WORDNET = {
    "a circle": noun(LIVING, "living_thing") + noun(CAT, "cat", DOG) + noun(DOG, "dog", CAT),
    "a circle of one": GOOD_WORDNET.replace(noun(CAT, "cat", LIVING), noun(CAT, "cat", CAT)),
    "a noun that is missing": GOOD_WORDNET + noun(300, "cow", 999),
    "no living thing": noun(CAT, "cat") + noun(DOG, "dog"),
    "a synset that is missing": GOOD_WORDNET.replace(noun(DOG, "dog", LIVING), ""),
    "a count of words that is none": GOOD_WORDNET.replace(" 01 cat", " zz cat"),
    "a count of words too large": GOOD_WORDNET.replace(" 01 cat", " ff cat"),
    "a count of pointers too large": GOOD_WORDNET.replace("cat 0 001", "cat 0 009"),
    "an offset too short": GOOD_WORDNET.replace("00000100 03", "100 03"),
    "a line cut off": GOOD_WORDNET[:-5],
    "empty lines": GOOD_WORDNET.replace("\n", "\n\n"),
    "letters beyond ASCII": GOOD_WORDNET.replace("cat", "kätzchen"),
    **{name: data for name, data in harms(GOOD_WORDNET.encode(), "wordnet").items()},
}


@pytest.mark.parametrize("odd", ODD_WORDNET)
def test_odd_wordnets(odd, tmp_path):
    root = tmp_path / "data"
    for i in range(8):
        file = root / (f"n{CAT:08d}" if i % 2 else f"n{DOG:08d}") / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(i))
    (tmp_path / "dict").mkdir()
    data = ODD_WORDNET[odd]
    (tmp_path / "dict" / "data.noun").write_bytes(data if isinstance(data, bytes) else data.encode())
    options = {"source": "folder", "root": root, "ranks": ["synset"], "target": "synset"}
    named = "n00000200" if odd == "a synset that is missing" else "data.noun"
    refused("WordNet", as_samples(**options, wordnet=tmp_path / "dict"), named, tmp_path)


def test_a_wordnet_deeper_than_pythons_stack(tmp_path):
    """Five thousand levels are no circle, and no reason to stop."""
    from granularity.data.wordnet import WordNet

    lines = [noun(10_000 + i, f"w{i}", 10_000 + i - 1 if i else LIVING) for i in range(5000)]
    (tmp_path / "data.noun").write_text(noun(LIVING, "living_thing") + "".join(lines))
    graph = WordNet.read(tmp_path).above(["n00014999"])
    assert graph.is_living("n00014999") and graph.level("n00014999", 100) == {"n00014899"}


GOOD_TAXONOMY = "species,kind\ncat,pet\ndog,pet\n"
ODD_TAXONOMIES = {
    "one column": "species\ncat\ndog\n",
    "no rows": "species,kind\n",
    "a class twice": GOOD_TAXONOMY + "cat,wild\n",
    "a class missing": "species,kind\ncat,pet\n",
    "no coarser class": GOOD_TAXONOMY.replace("dog,pet", "dog,"),
    "a reserved name": GOOD_TAXONOMY.replace("kind", "split"),
    "too many fields": GOOD_TAXONOMY.replace("dog,pet", "dog,pet,more"),
    "a quote that never ends": GOOD_TAXONOMY.replace("dog,pet", 'dog,"pet'),
    "another separator": GOOD_TAXONOMY.replace(",", "\t"),
    "latin-1": GOOD_TAXONOMY.replace("pet", "Tür").encode("latin-1"),
    "UTF-16": GOOD_TAXONOMY.encode("utf-16"),
    "a column twice": "species,kind,kind\ncat,pet,pet\ndog,pet,pet\n",
    **harms(GOOD_TAXONOMY.encode(), "taxonomy"),
}
del ODD_TAXONOMIES["truncated at the end"]  # of its last line break


@pytest.mark.parametrize("odd", ODD_TAXONOMIES)
def test_odd_taxonomies(odd, tmp_path):
    root = folder_of_images(tmp_path / "data")
    data = ODD_TAXONOMIES[odd]
    file = tmp_path / "taxonomy.csv"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    options = {"source": "folder", "root": root, "ranks": ["species"], "target": "species", "taxonomy": file}
    refused("taxonomies", as_samples(**options), file, tmp_path)


# ---------------------------------------------------------------- encoders


GOOD_ENCODER = (Path(__file__).parents[2] / "config/encoders/digits-tiny.json").read_text()


def edited(change) -> str:
    values = json.loads(GOOD_ENCODER)
    change(values)
    return json.dumps(values)


ODD_ENCODERS = {
    "a list": "[]",
    "a number": "3",
    "nothing in it": "{}",
    "null": "null",
    "nested": "[" * 100_000,
    "no vision": edited(lambda v: v.pop("vision_cfg")),
    "no text": edited(lambda v: v.pop("text_cfg")),
    "no width": edited(lambda v: v.pop("embed_dim")),
    "a width of text": edited(lambda v: v.update(embed_dim="many")),
    "a width below zero": edited(lambda v: v.update(embed_dim=-3)),
    "an image of no size": edited(lambda v: v["vision_cfg"].update(image_size=0)),
    "patches of no size": edited(lambda v: v["vision_cfg"].update(patch_size=0)),
    "an unknown key": edited(lambda v: v["vision_cfg"].update(no_such_key=3)),
    "vision of text": edited(lambda v: v.update(vision_cfg="large")),
    "another context": edited(lambda v: v["text_cfg"].update(context_length="x")),
    "an unknown network": edited(lambda v: v["vision_cfg"].update(timm_model_name="no_such_network")),
    **harms(GOOD_ENCODER.encode(), "encoders"),
}
del ODD_ENCODERS["truncated at the end"]  # of its last line break


@pytest.mark.parametrize("odd", ODD_ENCODERS)
def test_odd_architectures(odd, chain, tmp_path):
    file = tmp_path / f"odd-{re.sub('[^a-z]+', '-', odd)}.json"
    data = ODD_ENCODERS[odd]
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    options = {"model": str(file), "captions": {"epochs": 1, "batch_size": 20}}
    words = ["--samples", CHAIN / "samples", "--options", json.dumps(options), "--device", "cpu"]
    refused("architectures", ["encoder", *words], file, tmp_path)


def checkpoints(tmp_path: Path) -> dict[str, tuple[str, bytes]]:
    """Names with their suffix: open_clip goes by it."""
    good = (CHAIN / "encoder/open_clip_model.safetensors").read_bytes()
    found = {f"{name}.safetensors": data for name, data in harms(good, "weights").items()}
    found |= {f"{name}.pt": data for name, data in harms(b"PK\x03\x04" + good, "pt").items()}
    found |= {f"{name}.npz": data for name, data in harms(b"PK\x03\x04" + good[:5000], "npz").items()}
    del found["a hole in the middle.safetensors"], found["noise.npz"]  # the first is other weights, as sound as any
    save_file({"x": np.zeros(3, np.float32)}, tmp_path / "other")
    found["of another network.safetensors"] = (tmp_path / "other").read_bytes()
    save_file({}, tmp_path / "other")
    found["of no network.safetensors"] = (tmp_path / "other").read_bytes()
    found["a program.pt"] = found["a program.bin"] = pickled(tmp_path)
    found["an old program.pt"] = f"cposix\nsystem\n(S'touch {tmp_path}/pwned'\ntR.".encode()
    np.savez(tmp_path / "other.npz", x=np.array([{}], dtype=object))
    found["objects.npz"] = (tmp_path / "other.npz").read_bytes()
    (tmp_path / "other").unlink()
    (tmp_path / "other.npz").unlink()
    return found


def test_odd_checkpoints(chain, tmp_path):
    for name, data in checkpoints(tmp_path).items():
        file = tmp_path / name
        file.write_bytes(data)
        options = {"model": tiny_chain.TINY["encoder"]["model"], "pretrained": str(file)}
        words = ["--samples", CHAIN / "samples", "--options", json.dumps(options), "--device", "cpu"]
        assert not UNSAFE.search(refused("checkpoints", ["embed", *words], file, tmp_path))
        assert not (tmp_path / "pwned").exists(), name
        file.unlink()


# ---------------------------------------------------------------- artifacts that hold what no stage writes


def spoil(folder: Path, name: str, write) -> None:
    """Replace a file of an artifact by another one, and make the manifest anew as if a stage had written it."""
    file = folder / name
    write(file)
    entry = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "bytes": file.stat().st_size}
    rewrite(folder, lambda manifest: manifest["files"][name].update(entry), whole=True)


def array(change):
    def write(file):
        np.save(file, change(np.load(file)))

    return write


def frame(change):
    def write(file):
        changed = change(pq.read_table(file).to_pandas())
        pq.write_table(pa.Table.from_pandas(changed, preserve_index=False), file)

    return write


def text(value):
    return lambda file: file.write_text(value)


def with_value(at, value):
    def change(values):
        values = values.copy()
        values[at] = value
        return values

    return change


def first_is(column, value):
    def change(table):
        table[column] = [value, *table[column].tolist()[1:]]
        return table

    return change


def all_are(column, value):
    return lambda table: table.assign(**{column: value})


def without(column):
    return lambda table: table.drop(columns=column)


EMBEDDINGS = {
    "NaN": array(with_value((3, 1), np.nan)),
    "infinite": array(with_value((slice(None), 0), np.inf)),
    "all NaN": array(lambda v: v * np.nan),
    "a row too few": array(lambda v: v[:-1]),
    "a row too many": array(lambda v: np.concatenate([v, v[:1]])),
    "no rows": array(lambda v: v[:0]),
    "no columns": array(lambda v: v[:, :0]),
    "flat": array(lambda v: v.ravel()),
    "a block": array(lambda v: v[:, :, None]),
    "text": array(lambda v: v.astype(str)),
    "complex": array(lambda v: v.astype(complex)),
    "whole numbers": array(lambda v: v.astype(np.int64)),
    "big-endian": array(lambda v: v.astype(">f4")),
    "a scalar": array(lambda v: np.float32(3)),
    "no array": text("no array"),
    "a Parquet file": lambda file: shutil.copyfile(CHAIN / "samples/samples.parquet", file),
}
PIXELS = {
    "a row too few": array(lambda v: v[:-1]),
    "no rows": array(lambda v: v[:0]),
    "floats": array(lambda v: v.astype(np.float32)),
    "flat": array(lambda v: v.reshape(len(v), -1)),
    "five dimensions": array(lambda v: v[..., None]),
    "text": array(lambda v: v.astype(str)),
    "no channels": array(lambda v: v[..., :0]),
    "no size": array(lambda v: v[:, :0]),
    "no array": text("no array"),
}
SAMPLES = {
    "no ids": frame(without("sample_id")),
    "no files": frame(without("file")),
    "no hashes": frame(without("sha256")),
    "a file that is null": frame(first_is("file", None)),
    "a file outside": frame(first_is("file", "../../../../../../etc/passwd")),
    "files that are numbers": frame(all_are("file", 3)),
    "a row below zero": frame(first_is("row", -1)),
    "a row too far": frame(first_is("row", 10**9)),
    "rows of text": frame(all_are("row", "x")),
    "bytes of text": frame(all_are("bytes", "x")),
    "an offset below zero": frame(all_are("offset", -5)),
    "no rows": frame(lambda t: t[:0]),
    "no table": text("no table"),
}
ASSIGNMENTS = {
    "NaN": frame(first_is("cluster", np.nan)),
    "below zero": frame(first_is("cluster", -1)),
    "too far": frame(first_is("cluster", 99)),
    "text": frame(all_are("cluster", "x")),
    "fractions": frame(all_are("cluster", 0.5)),
    "a row too few": frame(lambda t: t[:-1]),
    "another order": frame(lambda t: t[::-1]),
    "other images": frame(all_are("sample_id", "x")),
    "no clusters": frame(without("cluster")),
    "no ids": frame(without("sample_id")),
    "no table": text("no table"),
}
CLUSTER_TABLES = {
    "no superclass": frame(without("superclass")),
    "no number": frame(without("cluster")),
    "a row too few": frame(lambda t: t[:-1]),
    "no rows": frame(lambda t: t[:0]),
    "another order": frame(lambda t: t[::-1]),
    "no table": text("no table"),
}
LABELS = {
    "NaN": frame(first_is("label", np.nan)),
    "null": frame(first_is("label", None)),
    "below zero": frame(first_is("label", -1)),
    "too far": frame(first_is("label", 99)),
    "text": frame(all_are("label", "x")),
    "fractions": frame(all_are("label", 0.5)),
    "a row too few": frame(lambda t: t[:-1]),
    "another order": frame(lambda t: t[::-1]),
    "other images": frame(all_are("sample_id", "x")),
    "no labels": frame(without("label")),
    "no ids": frame(without("sample_id")),
    "no table": text("no table"),
}
CLASSES = {
    "no parent": frame(without("parent")),
    "no rows": frame(lambda t: t[:0]),
    "a row too few": frame(lambda t: t[:-1]),
    "no table": text("no table"),
}
PROPERTIES = {
    "no JSON": text("{"),
    "a list": text("[]"),
    "nothing": text("{}"),
    "null": text("null"),
}
RESULTS = {
    "no errors": frame(without("val_error")),
    "errors of text": frame(all_are("val_error", "x")),
    "errors that are null": frame(all_are("val_error", None)),
    "no space": frame(without("space")),
    "spaces that are null": frame(all_are("space", None)),
    "other runs": frame(all_are("run_id", "x")),
    "no rows": frame(lambda t: t[:0]),
    "no table": text("no table"),
}
RUNS = {
    "no backbone": frame(without("backbone")),
    "no space": frame(without("space")),
    "no seed": frame(without("pretrain_seed")),
    "a backbone that is null": frame(all_are("backbone", None)),
    "a backbone that is gone": frame(all_are("backbone", "backbones/gone.safetensors")),
    "a backbone outside": frame(all_are("backbone", "../../../encoder/open_clip_model.safetensors")),
    "another granularity": frame(all_are("granularity", 77)),
    "a granularity of text": frame(all_are("granularity", "x")),
    "no rows": frame(lambda t: t[:0]),
    "a row twice": frame(lambda t: pd.concat([t, t])),
    "no table": text("no table"),
}
CHECKPOINTS = {
    "no run": frame(without("run_id")),
    "no epoch": frame(without("epoch")),
    "epochs of text": frame(all_are("epoch", "x")),
    "a file that is null": frame(all_are("file", None)),
    "a file that is gone": frame(all_are("file", "backbones/gone.safetensors")),
    "a file outside": frame(all_are("file", "../../../../encoder/open_clip_model.safetensors")),
    "other runs": frame(all_are("run_id", "x")),
    "no rows": frame(lambda t: t[:0]),
    "no table": text("no table"),
}
PRETRAINED_CLASSES = {
    "no space": frame(without("space")),
    "labels of text": frame(all_are("label", "x")),
    "parents that are numbers": frame(all_are("parent", 3)),
    "no table": text("no table"),
}
MEASURED_RUNS = {
    "no run": frame(without("run")),
    "no space": frame(without("space")),
    "spaces that are null": frame(all_are("space", None)),
    "other runs": frame(all_are("run", "x")),
    "no rows": frame(lambda t: t[:0]),
    "no table": text("no table"),
}
VALUES = {
    "no run": frame(without("run")),
    "no split": frame(without("split")),
    "no key": frame(without("key")),
    "no value": frame(without("value")),
    "values of text": frame(all_are("value", "x")),
    "splits that are null": frame(all_are("split", None)),
    "keys that are numbers": frame(all_are("key", 3)),
    "other runs": frame(all_are("run", "x")),
    "no table": text("no table"),
}
SPOILT = {
    "embedding": ("embed", "embedding.npy", EMBEDDINGS, ("cluster", "whole-6")),
    "pixels": ("pixels", "pixels.npy", PIXELS, ("pretrain", "")),
    "samples": ("samples", "samples.parquet", SAMPLES, ("pixels", "")),
    "clusters": ("cluster/whole-6", "assignment.parquet", ASSIGNMENTS, ("hierarchy", "kmeans-6")),
    "cluster tables": ("cluster/whole-6", "clusters.parquet", CLUSTER_TABLES, ("hierarchy", "kmeans-6")),
    "labels": ("hierarchy/random-5", "labels.parquet", LABELS, ("pretrain", "")),
    "classes": ("hierarchy/random-5", "classes.parquet", CLASSES, ("pretrain", "")),
    "properties": ("hierarchy/random-5", "properties.json", PROPERTIES, ("pretrain", "")),
    "runs": ("pretrain/resnet18/all", "runs.parquet", RUNS, ("finetune", "")),
    "checkpoints": ("pretrain/resnet18/all", "checkpoints.parquet", CHECKPOINTS, ("measure", "")),
    "pretrained classes": ("pretrain/resnet18/all", "classes.parquet", PRETRAINED_CLASSES, ("measure", "")),
    "results": ("finetune/target/resnet18/all", "runs.parquet", RESULTS, ("report", "")),
    "measured runs": ("measure/probe/resnet18/all", "runs.parquet", MEASURED_RUNS, ("report", "")),
    "measured values": ("measure/probe/resnet18/all", "values.parquet", VALUES, ("report", "")),
}


@pytest.mark.parametrize("what", SPOILT)
def test_artifacts_that_hold_what_no_stage_writes(what, chain, tmp_path):
    place, name, ways, (kind, which) = SPOILT[what]
    wrong = {}
    for way, write in ways.items():
        with harmed(CHAIN / place):
            spoil(CHAIN / place, name, write)
            try:
                named = CHAIN / place.split("/")[0], (CHAIN / place).resolve()
                refused(what, reader(chain, kind, which), named, tmp_path)
            except BaseException as error:
                wrong[way] = f"{type(error).__name__}: {error}"
                shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert not wrong, "\n".join(f"{way}: {what}" for way, what in wrong.items())
