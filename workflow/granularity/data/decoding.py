"""Decode an image from untrusted bytes."""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular

if TYPE_CHECKING:
    from PIL import Image

# Common formats of image data sets. Pillow reads more, but it runs Ghostscript on EPS, and accepts almost any bytes
# as TGA.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
ENDINGS = {".apng", ".avif", ".avifs", ".bmp", ".gif", ".j2c", ".j2k", ".jfif", ".jp2", ".jpc", ".jpe", ".jpeg", ".jpf"}
ENDINGS |= {".jpg", ".jpx", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}  # of their file names
ORIENTATION = 0x0112  # EXIF's tag
TURNS = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE"}  # EXIF value -> turns it upright
TURNS |= {6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}
PNG = b"\x89PNG\r\n\x1a\n"
PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")  # chunks of a PNG that determine its pixels


class ImageError(ValueError):
    """Raised for bytes that are no usable image; `finding` is empty, unreadable, truncated, corrupt or bomb."""

    def __init__(self, finding: str, text: str):
        super().__init__(text)
        self.finding = finding


def decode(data: bytes, mode: str = "RGB") -> Image.Image:
    """Decode the image in a file's bytes; see :func:`open_image` and :func:`upright`."""
    return upright(open_image(data), mode)


def is_image(file: Path) -> bool:
    """Return whether a regular file begins as an image of a known format."""
    from PIL import Image

    try:
        with open_regular(file) as stream, image_errors():
            Image.open(stream, formats=FORMATS)
        return True
    except (ImageError, GranularityError, OSError):
        return False


def open_image(data: bytes) -> Image.Image:
    """Open an image and read its header. Raise ImageError: empty, of unknown format, or with too many pixels."""
    from PIL import Image, ImageFile

    if not data:
        raise ImageError("empty", "it is empty")
    if data[:4] == b"RIFF" and len(data) < 8 + int.from_bytes(data[4:8], "little"):  # unchecked by Pillow for WebP
        raise ImageError("truncated", "its header gives more bytes than there are")
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # another library may have turned it on
    try:
        with image_errors():
            image = Image.open(io.BytesIO(data), formats=FORMATS)
    except ImageError as error:
        if error.finding == "bomb" or data[:8] != PNG:
            raise
        with image_errors():
            image = Image.open(io.BytesIO(_without_metadata(data)), formats=("PNG",))
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise ImageError("bomb", f"{image.width} x {image.height} pixels are more than {limit}, Pillow's limit")
    return image


def upright(image: Image.Image, mode: str) -> Image.Image:
    """Decode an opened image's first frame, upright (by EXIF) and in a colour mode, or raise an ImageError."""
    from PIL import Image

    with image_errors():
        image.load()
        # Pillow reads 16-bit PGM as mode I, and scales it to 16 bits.
        if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM"):
            plain = _eight_bits(image).convert(mode)
        elif image.mode[0] not in "IF":
            plain = image.convert(mode)
        else:
            low, high = image.getextrema()
            problem = f"its pixels (mode {image.mode}) range from {low:g} to {high:g}"
            text = f"{problem}, and black and white are not defined; convert it to 8 bits"
            raise ImageError("unreadable", text)
        turn = TURNS.get(orientation(image))
        return plain if turn is None else plain.transpose(Image.Transpose[turn])


def orientation(image: Image.Image) -> int:
    """Return EXIF's orientation of an opened image, 1 to 8; 1 if it is missing or unreadable."""
    with contextlib.suppress(Exception):  # cameras and editors may write any metadata
        found = image.getexif().get(ORIENTATION)
        return found if found in TURNS else 1
    return 1


def _without_metadata(data: bytes) -> bytes:
    """Return a PNG file with only the chunks that determine its pixels and orientation."""
    kept, at = [data[:8]], 8
    while at + 12 <= len(data):
        chunk = data[at : at + 12 + int.from_bytes(data[at : at + 4], "big")]
        name, intact = chunk[4:8], zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")
        kept += [chunk] * (name in PIXELS or (name == b"eXIf" and intact))
        at += len(chunk)
    return b"".join(kept)


@contextlib.contextmanager
def image_errors() -> Iterator[None]:
    """Turn any exception of Pillow's decoders into an :class:`ImageError` of one line."""
    from PIL import Image

    try:
        yield
    except Image.UnidentifiedImageError:
        text = f"not in a known format ({', '.join(FORMATS)}), or of a depth that Pillow does not read"
        raise ImageError("corrupt", text) from None
    except ImageError:
        raise
    except Exception as error:
        text = " ".join((str(error) or type(error).__name__).split())[:200]
        bomb = (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError)
        if isinstance(error, bomb) or "MAX_TEXT" in text:  # limits on text and colour profiles in PNG files
            raise ImageError("bomb", text) from None
        raise ImageError("truncated" if "truncated" in text.lower() else "corrupt", text) from None


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey to 8 bits; Pillow's own conversion turns every value above 255 white."""
    import numpy as np
    from PIL import Image

    bits, white_is_zero = 16, False
    if image.format == "TIFF":  # Pillow reads 12 bits as 16, and white as black
        bits, white_is_zero = image.tag_v2[258][0], image.tag_v2.get(262, 0) == 0
    values = (np.asarray(image) >> (bits - 8)).astype(np.uint8)
    return Image.fromarray(255 - values if white_is_zero else values)
