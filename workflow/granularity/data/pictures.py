"""Decoded images by their row in the sample table, wherever they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from granularity.base.errors import GranularityError
from granularity.data import shards
from granularity.data.images import Images
from granularity.store.artifacts import Artifact

if TYPE_CHECKING:
    from PIL import Image


class Pictures(Protocol):
    """Images in the order of the sample table."""

    def __len__(self) -> int: ...

    def load(self, index: int) -> Image.Image:
        """One image in RGB.

        Raises:
            GranularityError: it cannot be read, or is not what it was.
        """


def of(samples: Artifact, pixels: Artifact | None = None) -> Pictures:
    """The images of a sample table: the originals, or what stage `pixels` has made of them.

    Raises:
        GranularityError: there are not as many pixels as samples.
    """
    images = Images(samples)
    if pixels is None:
        return images
    stored = Stored(pixels)
    if len(stored) != len(images):
        raise GranularityError(f"{pixels.path}: {len(stored)} images, but the sample table has {len(images)}")
    return stored


class Stored:
    """The images of stage `pixels`, squares or rectangles."""

    def __init__(self, pixels: Artifact):
        self._stored = shards.pictures(pixels)

    def __len__(self) -> int:
        return len(self._stored)

    def load(self, index: int) -> Image.Image:
        from PIL import Image

        values = self._stored[index]
        return Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values).convert("RGB")
