"""Shifted copies are of the same images; objects lie on backgrounds that say the label, or nothing."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from granularity.base import extensions
from granularity.data.images import Images
from granularity.stages.samples.source import pngs
from support import tasks

FILE = Path(__file__).parents[4] / "studies/cifar10_shifts/shifted.py"
LANDSCAPE, MEAL, FRUIT = (0, 0, 200), (200, 0, 0), (0, 200, 0)
GROUNDS = {"n09193705": LANDSCAPE, "n07873807": MEAL, "n07753592": FRUIT, "n01443537": (9, 9, 9)}
TESTS = ("plain", "grey", "noise", "noisier", "blur", "red", "grouped", "swapped", "other", "negative", "none")


def test_shifted_copies(tmp_path):
    rng = np.random.default_rng(0)
    grounds = np.stack([np.full((64, 64, 3), colour, dtype=np.uint8) for colour in GROUNDS.values()])
    parts = {"grounds/train": (grounds, [*GROUNDS])}
    for split, names in (("train", ["car", "cat"] * 20), ("test", ["cat", "car"] * 6)):
        parts[f"data/{split}"] = rng.integers(0, 256, (len(names), 32, 32, 3), dtype=np.uint8), names
    for name, (drawn, names) in parts.items():
        (file := tmp_path / f"{name}.parquet").parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"img": [{"bytes": one, "path": None} for one in pngs(drawn)], "label": names}), file)
    extensions.load([FILE])
    options = {"source": "shifted", "root": str(tmp_path / "data"), "backgrounds": str(tmp_path / "grounds")}
    options |= {"train": "train-shared", "extra_splits": [f"test-{one}" for one in TESTS], "train_size": 20}
    made = tasks.run("samples", tmp_path / "made", options | {"ranks": ["label"], "target": "label"})
    extensions.load([])
    table, images = made.table("samples.parquet"), Images(made)
    pixels = np.stack([np.asarray(images.load(i)) for i in range(len(images))]).astype(int)
    of = {str(split).removeprefix("test-"): pixels[rows] for split, rows in table.groupby("split").indices.items()}
    plain, labels = of["val"], table.loc[table["split"] == "val", "label"]

    np.testing.assert_array_equal(of["plain"], plain)
    assert np.abs(of["grey"] - (plain @ [0.299, 0.587, 0.114])[..., None]).max() <= 1
    inside = (plain > 100) & (plain < 150)  # where nothing is cut off
    assert 22 < (of["noise"] - plain)[inside].std() < 28 and 53 < (of["noisier"] - plain)[inside].std() < 67
    assert np.diff(of["blur"], axis=1).std() < 0.5 * np.diff(plain, axis=1).std()
    assert (of["red"][:, :4] == [150, 50, 50]).all() and (of["red"][:, 4:-4, 4:-4] == plain[:, 4:-4, 4:-4]).all()

    corners = {name: [tuple(one) for one in of[name][:, 0, 0]] for name in ("train", *TESTS[6:])}
    assert all((of[name][:, 12:20, 12:20] == plain[:, 12:20, 12:20]).all() for name in TESTS[6:])
    assert corners["grouped"] == [{"car": LANDSCAPE, "cat": MEAL}[label] for label in labels]
    assert corners["swapped"] == [{"cat": LANDSCAPE, "car": MEAL}[label] for label in labels]
    assert {*corners["other"]} == {FRUIT} and {*corners["none"]} == {(125, 123, 114)}
    assert {*corners["train"]} == {LANDSCAPE} and {*corners["negative"]} == {(255, 255, 55)}
