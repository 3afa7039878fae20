"""Decoding one image, whose bytes nobody vouches for."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

# What image data sets come in, and not all that Pillow reads: it runs Ghostscript on EPS, and takes almost any bytes
# for TGA.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")


class ImageError(ValueError):
    """Bytes that are no image that can be used; `finding` says why: empty, truncated, corrupt or bomb."""

    def __init__(self, finding: str, text: str):
        super().__init__(text)
        self.finding = finding


def decode(data: bytes, mode: str = "RGB") -> Image.Image:
    """The image in a file's bytes, upright (EXIF) and in the colour mode asked for.

    Raises:
        ImageError: empty, truncated or corrupt, or a decompression bomb.
    """
    return upright(open_image(data), mode)


def open_image(data: bytes) -> Image.Image:
    """The image in a file's bytes, of which only the header has been read.

    Raises:
        ImageError: empty, of no known format, or with more pixels than Pillow's MAX_IMAGE_PIXELS, of which Pillow
            itself only warns up to twice as many.
    """
    from PIL import Image, ImageFile

    if not data:
        raise ImageError("empty", "there are no bytes in it")
    if data[:4] == b"RIFF" and len(data) < 8 + int.from_bytes(data[4:8], "little"):  # of WebP, Pillow does not say it
        raise ImageError("truncated", "its own length is more than its bytes")
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # another library may have turned it on
    with image_errors():
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise ImageError("bomb", f"{image.width} x {image.height} pixels are more than {limit}, Pillow's limit")
    return image


def upright(image: Image.Image, mode: str) -> Image.Image:
    """Decode an opened image; its first frame where it has several.

    Raises:
        ImageError: truncated or corrupt, or a decompression bomb.
    """
    from PIL import ImageOps

    with image_errors():
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return (_eight_bits(image) if image.mode.startswith("I") else image).convert(mode)


@contextlib.contextmanager
def image_errors() -> Iterator[None]:
    """Turn whatever Pillow's decoders raise, which may be anything, into an :class:`ImageError` of one line."""
    from PIL import Image

    try:
        yield
    except Image.UnidentifiedImageError:
        raise ImageError("corrupt", f"none of the formats {', '.join(FORMATS)}") from None
    except Exception as error:
        text = " ".join((str(error) or type(error).__name__).split())[:200]
        bomb = (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError)
        if isinstance(error, bomb) or "MAX_TEXT" in text:  # the limits of text and colour profiles in PNG files
            raise ImageError("bomb", text) from None
        raise ImageError("truncated" if "truncated" in text.lower() else "corrupt", text) from None


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey, scaled; Pillow's own conversion turns every value above 255 white."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(np.clip(np.asarray(image) // 256, 0, 255).astype(np.uint8))
