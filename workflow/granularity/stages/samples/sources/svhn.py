"""Street View House Numbers, cropped digits ("format 2"): train_32x32.mat, test_32x32.mat and extra_32x32.mat.

Source: Y. Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning", 2011, and
http://ufldl.stanford.edu/housenumbers/: MATLAB 5 files with X, uint8 [32, 32, 3, images], and y [images, 1], in which
the digit 0 has the label 10. Rank: `label`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.stages.samples.options import Samples
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    from granularity.stages.samples.formats import arrays

IMAGES = 630_420
SPLITS = ("train", "test", "extra")


def read(params: Samples, threads: int = 1) -> Source:
    """The splits that the configuration asks for, in the publisher's order.

    Raises:
        GranularityError: a split that there is not, a missing or corrupt file, or a label out of range.
    """
    from granularity.stages.samples.formats import arrays

    wanted = {"train": params.train or "train", "val": params.val or "test"}
    wanted |= {f"extra_splits[{i}]": name for i, name in enumerate(params.extra_splits)}
    for key, name in wanted.items():
        if name not in SPLITS:
            raise GranularityError(f"samples.{key}: there is no split '{name}'; SVHN has {', '.join(SPLITS)}")
    parts = [_part(params.root / f"{split}_32x32.mat", split) for split in SPLITS if split in wanted.values()]
    return arrays.source(parts, {"label": [str(digit) for digit in range(10)]})


def _part(file: Path, split: str) -> arrays.Part:
    import numpy as np

    from granularity.stages.samples.formats import arrays, matlab

    found = matlab.load(file)
    for name in ("X", "y"):
        if name not in found:
            raise GranularityError(f"{file}: has no variable {name}; it is truncated, or not SVHN's cropped digits")
    images, labels = found["X"], found["y"].ravel()
    if images.shape[:3] != (32, 32, 3) or images.ndim != 4 or images.dtype != np.uint8 or not images.size:
        raise GranularityError(f"{file}: X is {images.dtype} {list(images.shape)} and not uint8 [32, 32, 3, images]")
    if len(labels) != images.shape[3]:
        raise GranularityError(f"{file}: has {images.shape[3]} images in X, but {len(labels)} labels in y")
    arrays.check_labels(file, labels, range(1, 11))
    return arrays.Part(split, images.transpose(3, 0, 1, 2), {"label": labels.astype(np.int64) % 10})
