"""Decoding one image, whose bytes nobody vouches for."""

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

# What image data sets come in, and not all that Pillow reads: it runs Ghostscript on EPS, and takes almost any bytes
# for TGA.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
ENDINGS = {".apng", ".avif", ".avifs", ".bmp", ".gif", ".j2c", ".j2k", ".jfif", ".jp2", ".jpc", ".jpe", ".jpeg", ".jpf"}
ENDINGS |= {".jpg", ".jpx", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}  # of names of such files
ORIENTATION = 0x0112  # EXIF's tag
TURNS = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE"}  # its value -> what turns upright
TURNS |= {6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}
PNG = b"\x89PNG\r\n\x1a\n"
PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")  # chunks of a PNG that decide its pixels


class ImageError(ValueError):
    """Bytes of no usable image; `finding` says why: empty, unreadable, truncated, corrupt or bomb."""

    def __init__(self, finding: str, text: str):
        super().__init__(text)
        self.finding = finding


def decode(data: bytes, mode: str = "RGB") -> Image.Image:
    """The image in a file's bytes; see :func:`open_image` and :func:`upright`."""
    return upright(open_image(data), mode)


def is_image(file: Path) -> bool:
    """Whether a regular file begins as an image of a known format."""
    from PIL import Image

    try:
        with open_regular(file) as stream, image_errors():
            Image.open(stream, formats=FORMATS)
        return True
    except (ImageError, GranularityError, OSError):
        return False


def open_image(data: bytes) -> Image.Image:
    """The image in a file's bytes, its header read; ImageError: empty, of no known format, or of too many pixels."""
    from PIL import Image, ImageFile

    if not data:
        raise ImageError("empty", "there are no bytes in it")
    if data[:4] == b"RIFF" and len(data) < 8 + int.from_bytes(data[4:8], "little"):  # of WebP, Pillow does not say it
        raise ImageError("truncated", "its own length is more than its bytes")
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
    """Decode an opened image, its first frame, turned upright (EXIF), in a colour mode; or raise an ImageError."""
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
            what = f"its pixels, of mode {image.mode}, go from {low:g} to {high:g}"
            text = f"{what}, and nothing says what is black and white: convert it to 8 bits"
            raise ImageError("unreadable", text)
        turn = TURNS.get(orientation(image))
        return plain if turn is None else plain.transpose(Image.Transpose[turn])


def orientation(image: Image.Image) -> int:
    """EXIF's orientation of an opened image, 1 to 8; 1 where there is none, or none that can be read."""
    with contextlib.suppress(Exception):  # metadata is whatever a camera or an editor wrote
        found = image.getexif().get(ORIENTATION)
        return found if found in TURNS else 1
    return 1


def _without_metadata(data: bytes) -> bytes:
    """A PNG file with nothing but the chunks that decide its pixels."""
    kept, at = [data[:8]], 8
    while at + 12 <= len(data):
        chunk = data[at : at + 12 + int.from_bytes(data[at : at + 4], "big")]
        name, intact = chunk[4:8], zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")
        kept += [chunk] * (name in PIXELS or (name == b"eXIf" and intact))
        at += len(chunk)
    return b"".join(kept)


@contextlib.contextmanager
def image_errors() -> Iterator[None]:
    """Turn whatever Pillow's decoders raise, which may be anything, into an :class:`ImageError` of one line."""
    from PIL import Image

    try:
        yield
    except Image.UnidentifiedImageError:
        text = f"none of the formats {', '.join(FORMATS)}, or of a depth that Pillow does not read"
        raise ImageError("corrupt", text) from None
    except ImageError:
        raise
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
