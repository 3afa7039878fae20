"""Data sets that ship arrays of pixels and no image files: what their sources share."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.stages.samples.source import Source

MAX_BYTES = 1 << 31  # of one array; the largest published one (SVHN's extra images) has 1.6e9


class Part(NamedTuple):
    """Consecutive images of one split.

    Attributes:
        split: the publisher's name of the split, to which several parts may belong.
        images: uint8 [images, height, width] (grey) or [images, height, width, 3].
        labels: rank -> integers [images], each the index of a class.
    """

    split: str
    images: np.ndarray
    labels: dict[str, np.ndarray]


def source(parts: Sequence[Part], classes: dict[str, Sequence[str]]) -> Source:
    """The images of all parts, in order; `sample_id` is the split and the position in it, such as train/00017.

    Args:
        parts: those of every split.
        classes: rank, coarse to fine -> the names of its classes, in the publisher's order.
    """
    splits = list(dict.fromkeys(part.split for part in parts))
    codes = np.repeat([splits.index(part.split) for part in parts], [len(part.images) for part in parts])
    numbers = pd.Series(codes).groupby(codes).cumcount()
    frame = pd.DataFrame(
        {
            "sample_id": [f"{splits[code]}/{number:05d}" for code, number in zip(codes, numbers, strict=True)],
            "split": pd.Categorical.from_codes(codes, splits),
        }
    )
    for rank, names in classes.items():
        frame[rank] = pd.Categorical.from_codes(np.concatenate([part.labels[rank] for part in parts]), names)
    return Source(frame, _pngs(parts))


def _pngs(parts: Sequence[Part]) -> Iterator[bytes]:
    """PNG files of the images, one at a time: all at once, as arrays and as files, they would take twice the memory."""
    from PIL import Image

    for part in parts:
        for image in part.images:
            stream = io.BytesIO()
            Image.fromarray(np.ascontiguousarray(image)).save(stream, "PNG")
            yield stream.getvalue()


def check_labels(file: Path, labels: np.ndarray, allowed: range, what: str = "label") -> None:
    """Raise an error that names the first record whose label is not allowed, if there is one."""
    wrong = np.flatnonzero(~np.isin(labels, np.arange(allowed.start, allowed.stop)))
    if len(wrong):
        raise GranularityError(
            f"{file}: record {wrong[0]} (the first is 0) has the {what} {labels[wrong[0]]}, which is not one of "
            f"{allowed.start} to {allowed.stop - 1}; the file is corrupt or of another data set"
        )
