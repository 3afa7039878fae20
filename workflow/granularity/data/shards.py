"""Images that stage `pixels` stored as JPEG, packed one after another into files (shards) listed in `index.parquet`."""

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
from granularity.store import place
from granularity.store.artifact import Artifact

if TYPE_CHECKING:
    from PIL import Image

NAME = "shards/{:05d}.jpegs"
INDEX = "index.parquet"
COLUMNS = dict.fromkeys(("file", "offset", "bytes", "crc32", "height", "width"), "whole")
LONGEST = 8  # times the short side; of longer images only the centre is kept
OPEN = 256  # files open at once


def pictures(pixels: Artifact) -> np.ndarray | Shards:
    """Return the centre squares of the images of a `pixels` artifact: item i is row i, uint8 [size, size, C]."""
    if pixels.facts.get("format") == "jpeg":
        return Shards(pixels)
    return pixels.array("pixels.npy", (None, None, None, None), np.uint8)


class Shards:
    """The images of a `pixels` artifact of format jpeg, in the order of the sample table; thread-safe."""

    def __init__(self, pixels: Artifact):
        self._pixels = pixels
        self.size, self.mode = int(pixels.facts["size"]), str(pixels.facts["mode"])
        table = pixels.table(INDEX, COLUMNS)
        self._file, self._offset, self._bytes, self._crc32, self.height, self.width = (
            table[column].to_numpy() for column in COLUMNS
        )
        self._names = sorted(name for name in pixels.manifest["files"] if name.startswith("shards/"))
        self._opened = functools.lru_cache(OPEN)(self._open)

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, index: int) -> np.ndarray:
        """Return the centre square of an image: uint8 [size, size, C]."""
        image, side = self.load(index), self.size
        left, top = (image.width - side) // 2, (image.height - side) // 2
        return np.asarray(image.crop((left, top, left + side, top + side))).reshape(side, side, -1)

    def load(self, index: int) -> Image.Image:
        """Load an image, whose short side is `size`. Raise GranularityError if its shard is missing or damaged."""
        from PIL import Image

        size = int(self._bytes[index])
        stream = self._opened(int(self._file[index]))
        try:
            data = os.pread(stream.fileno(), size, int(self._offset[index]))
            if len(data) != size or zlib.crc32(data) != self._crc32[index]:
                raise self._corrupt(index, "its CRC-32 differs from the index")
            with image_errors():
                image = Image.open(io.BytesIO(data), formats=("JPEG",))
                image.load()
        except (ImageError, OSError) as error:
            raise self._corrupt(index, getattr(error, "strerror", None) or str(error)) from None
        if image.mode != self.mode or image.size != (self.width[index], self.height[index]):
            raise self._corrupt(index, f"{image.width} x {image.height} {image.mode}, unlike the index")
        return image

    def _open(self, number: int) -> BinaryIO:
        try:
            return open_regular(self._pixels.folder / self._names[number])
        except GranularityError as error:
            raise self._with_remedy(str(error)) from None

    def _corrupt(self, index: int, why: str) -> GranularityError:
        file = self._pixels.path / self._names[self._file[index]]
        return self._with_remedy(f"{file}: the image of row {index} is corrupt ({why})")

    def _with_remedy(self, what: str) -> GranularityError:
        return GranularityError(f"{what}; delete {place.stamp_of(self._pixels.path)}, and snakemake recomputes it")
