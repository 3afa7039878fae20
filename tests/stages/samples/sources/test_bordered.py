"""Copies with borders: their colours, what is within, and that all of one seed are of the same images."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from granularity.base import extensions
from granularity.data.images import Images
from granularity.stages.samples.source import pngs
from support import tasks

FILE = Path(__file__).parents[4] / "studies/cifar10_border/bordered.py"
NAMES = ["car", "cat", "dog", "ship"]
RED, INVERTED = [150, 50, 50], [105, 205, 205]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Returns a function that makes the sample table of a training split, and its splits, classes and images."""
    rng, root = np.random.default_rng(0), tmp_path / "data"
    root.mkdir()
    for split, count in (("train", 40), ("test", 12)):
        images = rng.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
        rows = [{"bytes": data, "path": None} for data in pngs(images)]
        columns = {"img": rows, "label": rng.permutation(NAMES * (count // 4)).tolist()}
        pq.write_table(pa.table(columns), root / f"{split}.parquet")
    (tmp_path / "kinds.csv").write_text("label,kind\ncar,vehicle\ncat,animal\ndog,animal\nship,vehicle\n")
    extensions.load([FILE])
    monkeypatch.setattr(extensions.find("source", "bordered"), "TESTED", 6)

    def make(train: str, *extra: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        options = {"source": "bordered", "root": str(root), "train": train, "extra_splits": list(extra)}
        options |= {"taxonomy": str(tmp_path / "kinds.csv"), "ranks": ["kind", "label"], "target": "kind"}
        samples = tasks.run("samples", tmp_path / train, options | {"train_size": 20})
        table, images = samples.table("samples.parquet"), Images(samples)
        pixels = np.stack([np.asarray(images.load(i)) for i in range(len(images))])
        return table["split"].to_numpy(str), table["kind"].to_numpy(str), pixels

    yield make
    extensions.load([])


def border(pixels: np.ndarray) -> np.ndarray:
    """The pixels [N, P, 3] of the two outermost rings of 16 x 16."""
    return pixels[:, np.pad(np.zeros((12, 12), dtype=bool), 2, constant_values=True)]


def test_borders_have_their_colours_around_the_same_images(made):
    copies = ("test-mean", "test-inverted", "test-swapped")
    splits, _, clean = made("train", *copies)
    _, kinds, red = made("train-red", *copies)
    assert Counter(splits.tolist()) == {"train": 20, "val": 12} | dict.fromkeys(copies, 6)
    np.testing.assert_array_equal(red[:, 2:-2, 2:-2], clean[:, 2:-2, 2:-2])
    assert (border(red[splits == "train"]) == RED).all()
    np.testing.assert_array_equal(red[splits != "train"], clean[splits != "train"])  # tests do not follow the training
    assert (border(red[splits == "test-inverted"]) == INVERTED).all()
    assert (border(red[splits == "test-mean"]) == [125, 123, 114]).all()
    np.testing.assert_array_equal(red[splits == "test-mean"][:, 2:-2, 2:-2], clean[splits == "val"][:6, 2:-2, 2:-2])
    swapped = splits == "test-swapped"
    assert (border(red[swapped & (kinds == "vehicle")]) == INVERTED).all()
    assert (border(red[swapped & (kinds == "animal")]) == RED).all()
