"""Looking at one image: what can be wrong with it, or surprising."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, check_regular
from granularity.data.decoding import ImageError, image_errors, open_image, upright
from granularity.data.images import LARGEST, Reader

if TYPE_CHECKING:
    from PIL import Image

ORIENTATION = 0x0112  # EXIF


class Looked(NamedTuple):
    """Findings on one image: `findings` are pairs of a name, see :mod:`.checks`, and details."""

    size: int
    sha256: bytes
    findings: list[tuple[str, str]]


def look(reader: Reader, file: str, row: int | None, offset: int | None, size: int | None) -> Looked:
    """Read and decode one image."""
    import pyarrow as pa

    data, found = b"", []
    try:
        _refuse_to_read(reader, file, row, offset, size)
        data = reader.read(file, row, offset, size)
        image = open_image(data)
        found = list(_notes(image))  # before it is decoded: Pillow keeps some of this only until then
        upright(image, "RGB")
        if image.format == "PNG":  # the one format with checksums, which Pillow does not look at to decode
            with image_errors():
                open_image(data).verify()
        if _has_frames(image):
            found.append(("animated", "the first of its frames is used"))
    except MissingError as error:
        found = [("missing", str(error))]
    except ImageError as error:
        found = [(error.finding, str(error))]
    except (GranularityError, OSError, ValueError, MemoryError, pa.ArrowException) as error:
        found = [("unreadable", " ".join(str(error).split()))]
    return Looked(len(data), hashlib.sha256(data).digest(), found)


def _refuse_to_read(reader: Reader, file: str, row: int | None, offset: int | None, size: int | None) -> None:
    """Raise for pipes and devices, and for bytes that nobody has the memory for."""
    there = check_regular(reader.root / file)
    if not pd.isna(row):
        return
    if not pd.isna(offset) and int(offset) + int(size) > there.st_size:
        raise GranularityError(f"{reader.root / file}: the file ends early; it is truncated")
    length = there.st_size if pd.isna(offset) else int(size)
    if length > LARGEST:
        raise ImageError("bomb", f"{length} bytes are more than any image has")


def _notes(image: Image.Image) -> Iterator[tuple[str, str]]:
    mode = f"Pillow's mode {image.mode}"
    if image.mode == "CMYK":
        yield "cmyk", "converted by formula, without its colour profile"
    if image.mode in ("P", "PA"):
        yield "palette", mode
    if image.mode[0] in "IF" or ";16" in repr(image.tile):  # of RGB with 16 bits, Pillow keeps the upper 8
        yield "sixteen_bit", f"{mode}, of more than 8 bits a channel"
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        yield "alpha", f"{mode}: what is transparent shows its hidden colour"
    with image_errors():
        orientation = image.getexif().get(ORIENTATION, 1)
    if orientation in range(2, 9):
        yield "rotated", f"EXIF orientation {orientation}: it is turned upright"


def _has_frames(image: Image.Image) -> bool:
    with contextlib.suppress(Exception):  # a second frame that is broken is not used
        return bool(getattr(image, "is_animated", False))
    return True
