"""Read the images that a sample table lists."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.regular import check_regular, open_regular, read_regular
from granularity.data.columns import PLACE
from granularity.data.decoding import ImageError, decode
from granularity.store.artifact import Artifact

if TYPE_CHECKING:
    from PIL import Image

COLUMNS = {"sample_id": "text", "file": "text", "row": "number?", "offset": "number?", "bytes": "number"}
COLUMNS |= {"sha256": "text?"}  # types of the columns; ? allows null
LARGEST = 1 << 30  # bytes: more than any image whose pixels Pillow accepts


class Images:
    """Images of a sample table, in row order; a changed or corrupt file is an error that names the file."""

    def __init__(self, samples: Artifact):
        self.table = samples.table("samples.parquet", COLUMNS)
        where = samples.path / "samples.parquet"
        if not len(self.table) or any((self.table[name].dropna() < 0).any() for name in PLACE[1:]):
            raise GranularityError(f"{where}: has no rows, or a negative row, offset or size")
        self.reader = Reader(Path(samples.params["root"] or samples.folder), samples.params.get("image_column"))

    def __len__(self) -> int:
        return len(self.table)

    def load(self, index: int, mode: str = "RGB") -> Image.Image:
        """Decode an image, upright and in a colour mode. GranularityError: it is missing, changed or not an image."""
        return self.hashed(index, mode)[0]

    def hashed(self, index: int, mode: str = "RGB") -> tuple[Image.Image, bytes]:
        """Return the image as :meth:`load` does, and the SHA-256 of its bytes, even if the sample table lacks it."""
        sample = self.table.iloc[index]
        place, expected = [sample[column] for column in PLACE], sample["sha256"]
        data, where = self.reader.read(*place), self.reader.name(*place[:3])
        digest = hashlib.sha256(data)
        changed = len(data) != place[3] if pd.isna(expected) else digest.hexdigest() != expected
        if changed:
            raise GranularityError(f"{where}: has changed since the sample table was made; recompute the samples")
        try:
            return decode(data, mode), digest.digest()
        except ImageError as error:
            remedy = "repair or remove it, or set samples.check_images to skip"
            raise GranularityError(f"{where}: cannot be decoded as an image ({error}); {remedy}") from None


class Reader:
    """Reads bytes of single images: whole files, rows of Parquet files, members of archives."""

    def __init__(self, root: Path, column: str | None = None):
        self.root, self._column = root, column  # of images, in Parquet files
        self._lock = threading.Lock()
        # Ignore warnings about odd metadata, which does not matter here, and large images, which `decode` refuses. Set
        # once here rather than for each image, because all threads share Python's filters.
        warnings.filterwarnings("ignore", module=r"PIL\.")

    def name(self, file: str, row: int | None, offset: int | None) -> str:
        """Return the name of an image for messages."""
        place = "" if pd.isna(row) else f" row {row}"
        place += "" if pd.isna(offset) else f" at byte {offset}"
        return f"{self.root / file}{place}"

    def read(self, file: str, row: int | None, offset: int | None, size: int | None) -> bytes:
        """Return the bytes at a place (see `Source` of the samples). GranularityError: gone, unreadable, too short."""
        import pyarrow as pa

        try:
            if not pd.isna(row):
                check_regular(self.root / file)
                with self._lock:  # otherwise each thread would read its own row group
                    return _parquet_row(self.root / file, int(row), self._column)
            if pd.isna(offset):
                return read_regular(self.root / file, LARGEST)
            with open_regular(self.root / file) as stream:
                stream.seek(int(offset))
                length = os.fstat(stream.fileno()).st_size
                data = stream.read(int(size)) if size <= length else b""  # Python would allocate all of it first
        except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a null byte in its name
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
            raise GranularityError(f"{self.root / file}: cannot be read ({reason})") from None
        if len(data) != size:
            raise GranularityError(f"{self.name(file, row, offset)}: the file ends early; it is truncated")
        return data


def _parquet_row(file: Path, row: int, name: str | None) -> bytes:
    starts = _row_groups(file)
    group = int(starts.searchsorted(row, side="right")) - 1
    column, within = _row_group(file, group, name), row - int(starts[group])
    value = column[within].as_py() if within < len(column) else None
    data, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
    if data is None:
        elsewhere = (
            f", but the path {path!r}; for images beside the file, set samples.source to 'table'" if path else ""
        )
        raise GranularityError(f"{file}: row {row} contains no image bytes{elsewhere}")
    return data


@functools.lru_cache(maxsize=1024)
def _row_groups(file: Path):
    import numpy as np
    import pyarrow.parquet as pq

    meta = pq.read_metadata(file)
    return np.cumsum([0, *(meta.row_group(i).num_rows for i in range(meta.num_row_groups))])[:-1]


@functools.lru_cache(maxsize=4)
def _row_group(file: Path, group: int, name: str | None):
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader = pq.ParquetFile(file)
    name = image_column(reader.schema_arrow, file, name)
    try:
        return reader.read_row_group(group, columns=[name]).column(name).combine_chunks()
    except (OSError, pa.ArrowException) as error:
        raise GranularityError(f"{file}: corrupt ({error})") from None


def image_column(schema, file: Path, asked: str | None = None) -> str:
    """Return the column of an Arrow schema that holds images, as {bytes, path} or else as plain bytes.

    Raise GranularityError if there is none, not the requested one, or several and none was requested.
    """
    from pyarrow import types

    structs = [
        field.name for field in schema if types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
    ]
    plain = [field.name for field in schema if types.is_binary(field.type) or types.is_large_binary(field.type)]
    columns = [asked] if asked in (*structs, *plain) else structs or plain
    if asked is not None and columns != [asked]:
        raise GranularityError(
            f"{file}: samples.image_column: '{asked}' is not a column of images; choose one of {columns}"
        )
    if len(columns) > 1:
        raise GranularityError(f"{file}: has several columns of images, {columns}; name one in samples.image_column")
    if not columns:
        raise GranularityError(f"{file}: has no column of images, of bytes or of {{bytes, path}}")
    return columns[0]
