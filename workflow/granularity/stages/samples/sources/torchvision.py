"""MNIST's family (`mnist`), CIFAR-10 and -100 (`cifar`), SVHN (`svhn`), using torchvision's knowledge of their files.

Sources: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; Y. Netzer et al., "Reading Digits
in Natural Images with Unsupervised Feature Learning", 2011; G. Cohen et al., arXiv:1702.05373 (EMNIST; transposed:
https://www.tensorflow.org/datasets/catalog/emnist).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular
from granularity.stages.samples.options import Samples
from granularity.stages.samples.source import Source, pngs, wanted

if TYPE_CHECKING:
    import numpy as np

EXPECTED_IMAGES = {
    "cifar": 60_000,
    "mnist": 814_255,
    "svhn": 630_420,
}  # for the largest of MNIST's family, EMNIST byclass
LARGEST = 2 << 30  # bytes of a file, packed or unpacked; SVHN's extra images have 1.3e9
CIFAR = {  # torchvision's class -> rank -> the keys of class names in `meta` and of labels in the batches
    "CIFAR10": {"class": ("label_names", "labels")},
    "CIFAR100": {"superclass": ("coarse_label_names", "coarse_labels"), "class": ("fine_label_names", "fine_labels")},
}
IDX = {"": range(10), "emnist-letters-": range(1, 27)}  # prefix of file names -> the labels
EMNIST = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "mnist": 10}
IDX |= {f"emnist-{name}-": range(count) for name, count in EMNIST.items()}
# Rank -> class names; and parts of a data set: the split, uint8 [images, height, width] or [images, height, width,
# 3], and rank -> the class index of each image.
Part = tuple[str, "np.ndarray", dict[str, "np.ndarray"]]
Found = Iterator[tuple[dict[str, list[str]], list[Part]]]


def read(params: Samples, threads: int = 1) -> Source:
    """Return the images in the publisher's order; `sample_id` is the split and position, such as train/00017."""
    import numpy as np
    import pandas as pd

    from granularity.stages.samples.ranks import numbered

    readers = {"cifar": _cifar, "svhn": _svhn, "mnist": _idx}
    chosen = [params.source] if params.source in readers else [*readers]
    datasets = [dataset for name in chosen for dataset in readers[name](params)]
    if len(datasets) != 1:
        holds = "files of several data sets" if datasets else "no data set"
        raise GranularityError(
            f"{params.root}: contains {holds}; point samples.root at the folder with the files of one"
        )
    classes, parts = datasets[0]
    split = np.repeat([split for split, _, _ in parts], [len(images) for _, images, _ in parts])
    frame = pd.DataFrame({"split": pd.Categorical(split, dict.fromkeys(split))})
    numbers = frame.groupby("split", observed=True).cumcount()
    frame.insert(0, "sample_id", [f"{name}/{number:05d}" for name, number in zip(split, numbers, strict=True)])
    for rank, names in classes.items():
        frame[rank] = numbered(np.concatenate([labels[rank] for _, _, labels in parts]), names)
    return Source(frame, pngs(image for _, images, _ in parts for image in images))


def _cifar(params: Samples) -> Found:
    import numpy as np
    from torchvision import datasets

    for name, ranks in CIFAR.items():
        kind = getattr(datasets, name)
        for place in (params.root, params.root / kind.base_folder):
            if (place / ("data_batch_1" if name == "CIFAR10" else "meta")).exists():
                meta, parts = _unpickled(place / kind.meta["filename"], kind.meta["md5"]), []
                for split, files in (("train", kind.train_list), ("test", kind.test_list)):
                    for file, md5 in files:
                        batch = _unpickled(place / file, md5)
                        images = batch["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
                        parts.append((split, images, {rank: np.array(batch[key]) for rank, (_, key) in ranks.items()}))
                yield {rank: meta[key] for rank, (key, _) in ranks.items()}, parts


def _unpickled(file: Path, md5: str) -> dict:
    return pickle.loads(_checked(file, md5), encoding="latin1")  # noqa: S301 - known by its checksum


def _checked(file: Path, md5: str) -> bytes:
    data = read_regular(file, LARGEST)
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
        raise GranularityError(
            f"{file}: is not the publisher's file (MD5 {md5}), so it is not opened; download it again"
        )
    return data


def _svhn(params: Samples) -> Found:
    from torchvision.datasets import SVHN

    splits = [split for split, (_, name, _) in SVHN.split_list.items() if (params.root / name).exists()]
    if "train" in splits:
        asked, parts = wanted(splits, params), []
        for split in (split for split in splits if split in asked):
            _, name, md5 = SVHN.split_list[split]
            _checked(params.root / name, md5)
            dataset = SVHN(params.root, split)
            parts.append((split, dataset.data.transpose(0, 2, 3, 1), {"label": dataset.labels}))
        yield {"label": [str(digit) for digit in range(10)]}, parts


def _idx(params: Samples) -> Found:
    names = ("MNIST", "FashionMNIST", "KMNIST", "EMNIST")
    for place in (params.root, *(params.root / name / "raw" for name in names)):
        for prefix, labels in IDX.items():
            if any(place.glob(f"{prefix}train-images*idx3-ubyte*")):
                parts = []
                for split, name in (("train", "train"), ("test", "test" if prefix else "t10k")):
                    images, codes = (_array(place, f"{prefix}{name}-{what}") for what in ("images-idx3", "labels-idx1"))
                    if len(images) != len(codes):
                        what = f"{len(images)} images, but {len(codes)} labels"
                        raise GranularityError(f"{place}: {prefix}{name} has {what}")
                    images = images.transpose(0, 2, 1) if prefix else images
                    parts.append((split, images, {"label": codes.astype(int) - labels.start}))
                yield {"label": [str(label) for label in labels]}, parts


def _array(place: Path, stem: str) -> np.ndarray:
    """Return the array of an IDX file, uint8: big-endian 0, 0, type, number of dimensions; the dimensions; the data."""
    import numpy as np

    names = [f"{stem}-ubyte", f"{stem}-ubyte.gz", f"{stem.replace('-idx', '.idx')}-ubyte"]  # some mirrors write a dot
    file = next((place / name for name in names if (place / name).exists()), place / names[0])
    data = read_regular(file, LARGEST)
    try:
        if data[:2] == b"\x1f\x8b":  # whatever its name: browsers unpack files without renaming them
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(LARGEST)
        if data[:4] != bytes((0, 0, 8, int(stem[-1]))):
            raise ValueError("wrong first bytes")
        shape = np.frombuffer(data, ">u4", data[3], 4)
        return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise GranularityError(f"{file}: is truncated or not an IDX file ({error}); download it again") from None
