"""CIFAR-10 and CIFAR-100 as they are published, in both forms: for C programs and for Python.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009, and the layout that
https://www.cs.toronto.edu/~kriz/cifar.html describes. A record is a label (CIFAR-100: the coarse, then the fine), then
32x32 pixels in rows: all red, all green, all blue. The form for Python holds the same in pickles, which are read
without unpickling them. Ranks: `class`; CIFAR-100 has the rank `superclass` above it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular, read_text
from granularity.stages.samples.options import Samples
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import numpy as np

    from granularity.stages.samples.formats import arrays

IMAGES = 60_000
PIXELS = 3 * 32 * 32
LARGEST = 512 << 20  # bytes of a binary file; the largest that is published has 154 MB


class Rank(NamedTuple):
    """A label: how many classes it has, the file with their names, and the keys of both in pickles."""

    classes: int
    meta: str
    names: str = ""
    labels: str = ""


class Layout(NamedTuple):
    """One published form: the folder that the archive unpacks to, the files of each split, and its labels in order."""

    folder: str
    splits: dict[str, list[str]]
    ranks: dict[str, Rank]
    pickled: bool

    @property
    def files(self) -> list[str]:
        return [
            *(file for files in self.splits.values() for file in files),
            *(rank.meta for rank in self.ranks.values()),
        ]


LAYOUTS = (
    Layout(
        "cifar-10-batches-bin",
        {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]},
        {"class": Rank(10, "batches.meta.txt")},
        pickled=False,
    ),
    Layout(
        "cifar-10-batches-py",
        {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]},
        {"class": Rank(10, "batches.meta", "label_names", "labels")},
        pickled=True,
    ),
    Layout(
        "cifar-100-binary",
        {"train": ["train.bin"], "test": ["test.bin"]},
        {"superclass": Rank(20, "coarse_label_names.txt"), "class": Rank(100, "fine_label_names.txt")},
        pickled=False,
    ),
    Layout(
        "cifar-100-python",
        {"train": ["train"], "test": ["test"]},
        {
            "superclass": Rank(20, "meta", "coarse_label_names", "coarse_labels"),
            "class": Rank(100, "meta", "fine_label_names", "fine_labels"),
        },
        pickled=True,
    ),
)


def read(params: Samples, threads: int = 1) -> Source:
    """Both splits, in the publisher's order.

    Raises:
        GranularityError: the files of none or of several published forms, a missing, truncated or corrupt one, a
            label out of range, or a pickle of more than plain data.
    """
    from granularity.stages.samples.formats import arrays

    folder, layout = _find(params.root)
    classes = {rank: _names(folder / form.meta, form) for rank, form in layout.ranks.items()}
    parts = list(_parts(folder, layout))
    return arrays.source(parts, classes)


def _find(root: Path) -> tuple[Path, Layout]:
    """The folder with the data, root or one in it, and the form that its files have."""
    found = [
        (folder, layout)
        for layout in LAYOUTS
        for folder in (root, root / layout.folder)
        if any(os.path.isfile(folder / file) for file in layout.files)
    ]
    if len(found) > 1:
        forms = " and ".join(f"{layout.folder} (in {folder})" for folder, layout in found)
        raise GranularityError(f"{root}: holds files of {forms}; point samples.root at a folder that has one of them")
    if not found:
        forms = ", ".join(layout.folder for layout in LAYOUTS)
        raise GranularityError(f"{root}: holds no CIFAR; point samples.root at one of the publisher's folders {forms}")
    return found[0]


def _names(file: Path, rank: Rank) -> list[str]:
    """The names of the classes, in the order of their indices."""
    from granularity.stages.samples.formats import restricted_pickle

    if rank.names:
        names = restricted_pickle.load(file).get(rank.names)
        if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
            raise GranularityError(f"{file}: has no list of names '{rank.names}'; get it from its publisher")
        names = [name.decode("latin-1") if isinstance(name, bytes) else name for name in names]
    else:
        text = read_text(file)
        if not text.isascii():
            raise GranularityError(f"{file}: is no ASCII text; get it from its publisher")
        names = [line.strip() for line in text.splitlines() if line.strip()]
    if len(names) != rank.classes or len(set(names)) != len(names):
        raise GranularityError(
            f"{file}: names {len(set(names))} classes, not {rank.classes}; get it from its publisher"
        )
    return names


def _parts(folder: Path, layout: Layout) -> Iterator[arrays.Part]:
    import numpy as np

    from granularity.stages.samples.formats import arrays

    above = np.full(layout.ranks["class"].classes, -1)  # the superclass of each class, once one image has told it
    for split, files in layout.splits.items():
        for file in (folder / name for name in files):
            images, labels = (_unpickled if layout.pickled else _records)(file, layout.ranks)
            for rank, form in layout.ranks.items():
                arrays.check_labels(file, labels[rank], range(form.classes), rank)
            if "superclass" in labels:
                _check_nesting(file, labels["superclass"], labels["class"], above)
            yield arrays.Part(split, images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels)


def _records(file: Path, ranks: dict[str, Rank]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Pixels uint8 [images, 3072] and labels of one binary file."""
    import numpy as np

    length = len(ranks) + PIXELS
    data = np.frombuffer(read_regular(file, LARGEST), dtype=np.uint8)
    if not len(data) or len(data) % length:
        raise GranularityError(
            f"{file}: has {len(data)} bytes, which is no whole number of records of {length}; it is truncated or of "
            "another data set, get it from its publisher"
        )
    records = data.reshape(-1, length)
    return records[:, len(ranks) :], {rank: records[:, i].astype(np.int64) for i, rank in enumerate(ranks)}


def _unpickled(file: Path, ranks: dict[str, Rank]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Pixels uint8 [images, 3072] and labels of one pickle."""
    import numpy as np

    from granularity.stages.samples.formats import restricted_pickle

    batch = restricted_pickle.load(file)
    pixels = batch.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (len(pixels), PIXELS):
        raise GranularityError(f"{file}: has no array 'data' of bytes, {PIXELS} per image; get it from its publisher")
    if not len(pixels):
        raise GranularityError(f"{file}: holds no images; get it from its publisher")
    labels = {}
    for rank, form in ranks.items():
        values = batch.get(form.labels)
        if not isinstance(values, list) or len(values) != len(pixels):
            raise GranularityError(
                f"{file}: has no list '{form.labels}' of {len(pixels)} labels; get it from its publisher"
            )
        known = [value if type(value) is int and 0 <= value < form.classes else -1 for value in values]
        labels[rank] = np.array(known, dtype=np.int64)
    return pixels, labels


def _check_nesting(file: Path, superclasses: np.ndarray, classes: np.ndarray, above: np.ndarray) -> None:
    """Every class lies in one superclass; fills in `above`."""
    import numpy as np

    first = np.flatnonzero(above[classes] < 0)[::-1]
    above[classes[first]] = superclasses[first]
    wrong = np.flatnonzero(above[classes] != superclasses)
    if len(wrong):
        i = wrong[0]
        raise GranularityError(
            f"{file}: record {i} (the first is 0) has superclass {superclasses[i]}, but others of class {classes[i]} "
            f"have {above[classes[i]]}; the file is corrupt, get it from its publisher"
        )
