"""Some classes alone, and another data set's images as a split of their own."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from granularity.base import extensions
from granularity.data.images import Images
from granularity.stages.samples.source import pngs
from support import tasks

FILE = Path(__file__).parents[4] / "studies/cifar10_filters/subsets.py"


def test_classes_are_chosen_and_others_are_a_split(tmp_path):
    for name, shade, classes in (("one", 10, ["car", "cat", "dog"]), ("two", 200, ["n00000001"])):
        (tmp_path / name).mkdir()
        for split in ("train", "test"):
            images = np.full((12, 4, 4, 3), shade, np.uint8)
            columns = {"img": [{"bytes": data, "path": None} for data in pngs(images)], "label": (classes * 12)[:12]}
            pq.write_table(pa.table(columns), tmp_path / name / f"{split}.parquet")
    extensions.load([FILE])
    options = {"source": "subsets", "root": str(tmp_path / "one"), "ranks": ["label"], "target": "label"}
    options |= {"classes": ["dog", "car"], "others": str(tmp_path / "two"), "extra_splits": ["others"]}
    try:
        samples = tasks.run("samples", tmp_path / "out", options)
        table, images = samples.table("samples.parquet"), Images(samples)
        counts = Counter(zip(table["split"], table["label"].astype(str), strict=True))
        both = {(split, name): 4 for split in ("train", "val") for name in ("car", "dog")}
        assert counts == both | {("others", "other"): 12}
        shades = np.array([np.asarray(images.load(i)).mean() for i in range(len(images))])
        np.testing.assert_array_equal(shades, np.where(table["split"] == "others", 200, 10))
    finally:
        extensions.load([])
