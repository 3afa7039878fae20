"""Images that stage `pixels` has kept as JPEG, packed one after another into files of some hundred megabytes (shards).

Each image lies where `index.parquet` says, and is compared with its checksum there whenever it is read: shards of
terabytes need not be hashed before the first image is seen.
"""

from __future__ import annotations

import functools
import io
import os
import zlib
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular
from granularity.data.decoding import ImageError, image_errors
from granularity.store import generations
from granularity.store.artifacts import Artifact

if TYPE_CHECKING:
    from PIL import Image

NAME = "shards/{:05d}.jpegs"
INDEX = "index.parquet"
COLUMNS = dict.fromkeys(("file", "offset", "bytes", "crc32", "height", "width"), "whole")
LONGEST = 8  # times the short side: of longer images the centre is kept
OPEN = 256  # files open at once


def check_codec() -> None:
    """Raise a GranularityError if this Pillow reads and writes no JPEG."""
    from PIL import features

    if not features.check("jpg"):
        raise GranularityError(
            "pixels.format: jpeg: this Pillow was built without the JPEG codec; install a wheel of it (pip install "
            "--force-reinstall pillow), or choose raw"
        )


def pictures(pixels: Artifact) -> np.ndarray | Shards:
    """The centre squares of the images of a `pixels` artifact: the image of row i, uint8 [size, size, C], at [i]."""
    return Shards(pixels) if is_sharded(pixels) else pixels.array("pixels.npy", (None, None, None, None), np.uint8)


def is_sharded(pixels: Artifact) -> bool:
    """Whether an artifact of stage `pixels` holds JPEG shards."""
    return pixels.facts.get("format") == "jpeg"


class Shards:
    """The images of a `pixels` artifact of format jpeg, in the order of the sample table; for any number of threads.

    Attributes:
        size: the short side of each image, in pixels.
        mode: L or RGB.
        height, width: of each image, int32 [N].
    """

    def __init__(self, pixels: Artifact):
        check_codec()
        self._pixels = pixels
        self.size, self.mode = int(pixels.facts["size"]), str(pixels.facts["mode"])
        table = pixels.table(INDEX, COLUMNS)
        self._file, self._offset, self._bytes, self._crc32, self.height, self.width = (
            table[column].to_numpy() for column in COLUMNS
        )
        self._names = sorted(name for name in pixels.manifest["files"] if name.startswith("shards/"))
        self._check()
        self._opened = functools.lru_cache(OPEN)(self._open)

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, index: int) -> np.ndarray:
        """The centre square of an image: uint8 [size, size, C]."""
        image, side = self.load(index), self.size
        left, top = (image.width - side) // 2, (image.height - side) // 2
        return np.asarray(image.crop((left, top, left + side, top + side))).reshape(side, side, -1)

    def load(self, index: int) -> Image.Image:
        """One image: its short side is `size`.

        Raises:
            GranularityError: its shard is missing or unreadable, or its bytes are not those that were written.
        """
        from PIL import Image

        data = self.read(index)
        try:
            with image_errors():
                image = Image.open(io.BytesIO(data), formats=("JPEG",))
                image.load()
        except ImageError as error:
            raise self._corrupt(index, str(error)) from None
        if image.mode != self.mode or image.size != (self.width[index], self.height[index]):
            raise self._corrupt(index, f"{image.width} x {image.height} {image.mode}, which the index does not say")
        return image

    def read(self, index: int) -> bytes:
        """The JPEG of an image; raises as :meth:`load` does."""
        size = int(self._bytes[index])
        stream = self._opened(int(self._file[index]))
        try:
            data = os.pread(stream.fileno(), size, int(self._offset[index]))
        except OSError as error:
            raise self._corrupt(index, error.strerror or str(error)) from None
        if len(data) != size or zlib.crc32(data) != self._crc32[index]:
            raise self._corrupt(index, "its CRC-32 is not the index's")
        return data

    def _open(self, number: int) -> BinaryIO:
        try:
            return open_regular(self._pixels.folder / self._names[number])
        except GranularityError as error:
            why = str(error).partition(": ")[2]
            raise GranularityError(f"{self._pixels.path / self._names[number]}: {why}; {self._remedy}") from None

    def _check(self) -> None:
        """Raise a GranularityError if the index cannot be that of these files."""
        where = self._pixels.path / INDEX
        if self._names != [NAME.format(number) for number in range(len(self._names))]:
            raise GranularityError(f"{self._pixels.path}: its shards are not numbered 0, 1, ...; {self._remedy}")
        sizes = np.array([self._pixels.manifest["files"][name]["bytes"] for name in self._names])
        file, short = self._file.astype(np.int64), np.minimum(self.height, self.width)
        bad = (file < 0) | (file >= len(sizes)) | (self._offset < 0) | (self._bytes < 1)
        bad |= (short != self.size) | (np.maximum(self.height, self.width) > LONGEST * self.size)
        bad |= self._bytes > sizes[np.where(bad, 0, file)] - self._offset if len(sizes) else True
        if bad.any():
            raise GranularityError(
                f"{where}: row {int(bad.argmax())} leads to no image of these shards; {self._remedy}"
            )

    def _corrupt(self, index: int, why: str) -> GranularityError:
        file = self._pixels.path / self._names[self._file[index]]
        return GranularityError(f"{file}: the image of row {index} is corrupt ({why}); {self._remedy}")

    @property
    def _remedy(self) -> str:
        return f"delete {generations.stamp_of(self._pixels.path)}, and snakemake makes it again"
