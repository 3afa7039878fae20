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
ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}  # of names of images


class ImageError(ValueError):
    """Bytes of no usable image; `finding` says why: empty, unreadable, truncated, corrupt or bomb."""

    def __init__(self, finding: str, text: str):
        super().__init__(text)
        self.finding = finding


def decode(data: bytes, mode: str = "RGB") -> Image.Image:
    """The image in a file's bytes; see :func:`open_image` and :func:`upright`."""
    return upright(open_image(data), mode)


def open_image(data: bytes) -> Image.Image:
    """The image in a file's bytes, its header read; ImageError: empty, of no known format, or of too many pixels."""
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
    """Decode an opened image, its first frame, turned upright (EXIF), in a colour mode; or raise an ImageError."""
    from PIL import ImageOps

    with image_errors():
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode[0] not in "IF":
            return image.convert(mode)
        # Pillow reads 16-bit PGM as mode I, and scales it to 16 bits.
        if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM"):
            return _eight_bits(image).convert(mode)
    low, high = image.getextrema()
    what = f"its pixels, of mode {image.mode}, go from {low:g} to {high:g}, and nothing says what is black and white"
    raise ImageError("unreadable", f"{what}: convert it to 8 bits")


@contextlib.contextmanager
def image_errors() -> Iterator[None]:
    """Turn whatever Pillow's decoders raise, which may be anything, into an :class:`ImageError` of one line."""
    from PIL import Image

    try:
        yield
    except Image.UnidentifiedImageError:
        text = f"none of the formats {', '.join(FORMATS)}, or of a depth that Pillow does not read"
        raise ImageError("corrupt", text) from None
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

    bits, white_is_zero = 16, False
    if image.format == "TIFF":  # where Pillow takes 12 bits for 16, and white for black
        bits, white_is_zero = image.tag_v2[258][0], image.tag_v2.get(262, 0) == 0
    values = (np.asarray(image) >> (bits - 8)).astype(np.uint8)
    return Image.fromarray(255 - values if white_is_zero else values)
