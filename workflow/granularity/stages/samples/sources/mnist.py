"""The MNIST family: grey images and labels in IDX files, also gzipped. MNIST, Fashion-MNIST, KMNIST and EMNIST.

Sources: Y. LeCun, C. Cortes and C. J. C. Burges, "The MNIST database of handwritten digits" (which defines IDX:
big-endian; bytes 0, 0, type, number of dimensions; the dimensions; the data); H. Xiao et al., arXiv:1708.07747;
T. Clanuwat et al., arXiv:1812.01718; G. Cohen et al., arXiv:1702.05373, whose images are transposed (see
https://www.tensorflow.org/datasets/catalog/emnist) and are turned upright here. Rank: `label`, the index as text.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular
from granularity.stages.samples.options import Samples
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import numpy as np

IMAGES = 814_255  # of the largest, EMNIST's byclass
# What the file names begin with -> the labels. `letters` counts from 1.
CLASSES = {
    "": range(10),
    "emnist-balanced-": range(47),
    "emnist-byclass-": range(62),
    "emnist-bymerge-": range(47),
    "emnist-digits-": range(10),
    "emnist-letters-": range(1, 27),
    "emnist-mnist-": range(10),
}
PICTURES, LABELS = 0x0803, 0x0801  # magic numbers: unsigned bytes, in three dimensions and in one


def read(params: Samples, threads: int = 1) -> Source:
    """Both splits, in the publisher's order.

    Raises:
        GranularityError: the files of none or of several data sets, a missing, truncated or corrupt one, or a label
            out of range.
    """
    import numpy as np

    from granularity.stages.samples.formats import arrays

    prefix = _find(params.root)
    allowed = CLASSES[prefix]
    parts = []
    for split, name in (("train", "train"), ("test", "test" if prefix else "t10k")):
        images_file = _file(params.root, f"{prefix}{name}-images", "idx3-ubyte")
        labels_file = _file(params.root, f"{prefix}{name}-labels", "idx1-ubyte")
        images, labels = _idx(images_file, PICTURES), _idx(labels_file, LABELS)
        if len(images) != len(labels):
            raise GranularityError(
                f"{labels_file}: has {len(labels)} labels, but {images_file.name} has {len(images)} images; get both "
                "from their publisher"
            )
        arrays.check_labels(labels_file, labels, allowed)
        codes = labels.astype(np.int64) - allowed.start
        parts.append(arrays.Part(split, images.transpose(0, 2, 1) if prefix else images, {"label": codes}))
    return arrays.source(parts, {"label": [str(label) for label in allowed]})


def _spellings(stem: str, kind: str) -> list[str]:
    """Names that a file may have; some mirrors write a dot."""
    return [f"{stem}{mark}{kind}{end}" for mark in "-." for end in ("", ".gz")]


def _find(root: Path) -> str:
    """Find what the names of the files in a folder begin with."""
    found = [
        prefix
        for prefix in CLASSES
        if any(
            os.path.isfile(root / file)
            for name in ("train", "test" if prefix else "t10k")
            for stem, kind in (("images", "idx3-ubyte"), ("labels", "idx1-ubyte"))
            for file in _spellings(f"{prefix}{name}-{stem}", kind)
        )
    ]
    if len(found) > 1:
        names = " and ".join(f"{prefix}train-images-idx3-ubyte" for prefix in found)
        raise GranularityError(f"{root}: holds {names}; point samples.root at a folder that has one data set")
    if not found:
        raise GranularityError(
            f"{root}: holds no file of MNIST's layout (train-images-idx3-ubyte, t10k-labels-idx1-ubyte.gz, "
            "emnist-letters-train-images-idx3-ubyte.gz, ...)"
        )
    return found[0]


def _file(root: Path, stem: str, kind: str) -> Path:
    for name in _spellings(stem, kind):
        if os.path.isfile(root / name):
            return root / name
    raise GranularityError(f"{root / f'{stem}-{kind}'}: is missing, with and without .gz; get it from its publisher")


def _idx(file: Path, magic: int) -> np.ndarray:
    """The array in an IDX file, uint8; reads no more than its header announces."""
    import numpy as np

    from granularity.stages.samples.formats import arrays

    axes = magic & 0xFF
    try:
        with open_regular(file) as raw:
            zipped = raw.read(2) == b"\x1f\x8b"  # whatever it is called: browsers unpack and keep the name
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if zipped else raw as stream:
                header = np.frombuffer(stream.read(4 * (1 + axes)).ljust(4 * (1 + axes)), dtype=">u4")
                if header[0] != magic:
                    raise GranularityError(
                        f"{file}: begins with {header[0]:#010x} instead of {magic:#010x}; it is truncated or no IDX "
                        f"file of {'images' if axes > 1 else 'labels'}"
                    )
                shape = [int(length) for length in header[1:]]
                size = math.prod(shape)
                if not 0 < size <= arrays.MAX_BYTES:
                    raise GranularityError(f"{file}: announces an array of {shape}, which is empty or absurdly large")
                data = stream.read(size + 1)  # one more, to notice what should not be there
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise GranularityError(f"{file}: cannot be read, or is truncated ({reason})") from None
    if len(data) != size:
        raise GranularityError(
            f"{file}: announces {size} bytes of data, but has {'more' if len(data) > size else len(data)}; it is "
            "truncated or corrupt, get it from its publisher"
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)
