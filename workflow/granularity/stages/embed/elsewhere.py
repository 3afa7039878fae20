"""Embeddings written by another program: a Parquet file, or an .npy file with its ids beside it.

Ids are those of the sample table; rows of other images are ignored. Messages count rows from 1.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from granularity.base.errors import GranularityError
from granularity.base.regular import check_regular, read_text
from granularity.learning.clip_options import files_of

# Column names of ids and of vectors; the first that exists is used.
IDS = ("sample_id", "id", "image_id", "image_path", "filepath", "file_path", "path", "file_name", "filename")
VECTORS = ("embedding", "embeddings", "vector", "features")
NUMBERED = re.compile(r"(.*?)\d+")


def places(file: str, wanted: Iterable[str] | None) -> np.ndarray:
    """Return the row of each wanted image in a file, by its id (None: only check the file). Raises GranularityError:
    there are no ids or vectors, an id occurs twice, or a wanted one is missing.
    """
    _vector_columns(file)
    ids = pd.Index(_ids(file))
    if (twice := ids.duplicated()).any():
        row = int(twice.argmax())
        raise GranularityError(f"{file}: row {row + 1}: '{ids[row]}' appears twice; keep one of its rows")
    wanted = pd.Index([] if wanted is None else list(wanted))
    positions = ids.get_indexer(wanted)
    if len(missing := wanted[positions < 0]):
        examples = ", ".join(map(repr, missing[:3]))
        problem = f"{len(missing):,} of {len(wanted):,} images are missing, such as {examples}"
        has = f"its ids look like {ids[0]!r}" if len(ids) else "it is empty"
        raise GranularityError(f"{file}: {problem}; {has}, but must be the sample_id of the sample table")
    return positions


def rows(file: str, wanted: Iterable[str]) -> np.ndarray:
    """Return the vectors of some images, normalised: float32 [N, D]. Raises GranularityError as :func:`places` does,
    and for vectors of different widths, zero vectors and vectors that are not finite.
    """
    positions, ids = places(file, wanted), _ids(file)
    values = _array(file) if file.endswith(".npy") else _values(file, ids)
    if len(values) != len(ids):
        raise GranularityError(f"{file}: {len(values):,} vectors, but {len(ids):,} ids; write one vector per id")
    vectors = values[positions].astype(np.float64)
    lengths = np.sqrt(np.square(vectors).sum(1))
    if len(bad := np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))):
        row = int(positions[bad[0]])
        state = "all zeros" if lengths[bad[0]] == 0 else "not finite"
        raise GranularityError(f"{file}: row {row + 1}: the vector of '{ids[row]}' is {state}; embed that image again")
    return (vectors / lengths[:, None]).astype(np.float32)


def _ids(file: str) -> list[str]:
    if file.endswith(".npy"):
        beside = files_of(file)[1:]
        if not beside:
            raise GranularityError(
                f"{file}: no file of ids is beside it; write them to {Path(file).with_suffix('.txt')}"
            )
        if beside[0].endswith(".txt"):
            return read_text(beside[0]).splitlines()
        file = beside[0]
    schema = _schema(file)
    name = next((name for name in IDS if name in schema.names), None)
    if name is None:
        raise GranularityError(f"{file}: has no column of ids; name it sample_id")
    column = _read(file, [name])[name]
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise GranularityError(f"{file}: row {row + 1}: {name} is missing")
    return column.cast(pa.string()).to_pylist()


def _vector_columns(file: str) -> list[str]:
    """Return the column of vectors, or the numbered columns of their components; empty if the file is an array."""
    if file.endswith(".npy"):
        _array(file)
        return []
    fields = list(_schema(file))
    lists = [field.name for field in fields if _is_number(getattr(field.type, "value_type", None))]
    numbers = [field.name for field in fields if pa.types.is_floating(field.type)]
    chosen = [name for name in VECTORS if name in lists][:1] or (lists if len(numbers) < 2 else [])
    if len(chosen) == 1:
        return chosen
    if lists or len(numbers) < 2:
        text = f"{len(lists)} columns of vectors" if lists else "no column of vectors, nor several columns of numbers"
        text += f" beside {len(numbers)} columns of numbers" if lists and len(numbers) > 1 else ""
        raise GranularityError(f"{file}: has {text}; name the column of vectors 'embedding'")
    stems = {name: match[1] if (match := NUMBERED.fullmatch(name)) else None for name in numbers}
    stem, _ = Counter(stems.values()).most_common(1)[0]
    if others := [name for name in numbers if stem is None or stems[name] != stem]:
        raise GranularityError(
            f"{file}: columns {', '.join(map(repr, others[:3]))} have no number, or another name than the rest; remove "
            "what is not a component of the vectors, or write these as lists in a column 'embedding'"
        )
    return numbers


def _is_number(kind: Any) -> bool:
    return isinstance(kind, pa.DataType) and (pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _values(file: str, ids: list[str]) -> np.ndarray:
    names = _vector_columns(file)
    table = _read(file, names)
    if len(names) > 1:
        return np.stack([table[name].to_numpy() for name in names], 1)
    column = table[names[0]].combine_chunks()
    widths = np.asarray(pa.compute.list_value_length(column).fill_null(0))
    if (mismatch := widths != widths[0]).any():
        row = int(mismatch.argmax())
        problem = f"the vector of '{ids[row]}' has {widths[row]} numbers, but row 1 has {widths[0]}"
        raise GranularityError(f"{file}: row {row + 1}: {problem}; embed all images with one encoder")
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(widths), -1)


def _array(file: str) -> np.ndarray:
    try:
        values = np.load(file, mmap_mode="r", allow_pickle=False)
        if values.ndim == 2 and values.dtype.kind in "fiu":
            return values
    except (OSError, ValueError, EOFError):
        pass
    raise GranularityError(f"{file}: is not an array of numbers with a row per image; write one with numpy.save")


def _schema(file: str) -> pa.Schema:
    check_regular(file)
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise GranularityError(f"{file}: is not an intact Parquet file ({str(error).splitlines()[0]})") from None


def _read(file: str, names: list[str]) -> pa.Table:
    try:
        return pq.read_table(file, columns=names)
    except (pa.ArrowException, OSError) as error:
        raise GranularityError(f"{file}: is not an intact Parquet file ({str(error).splitlines()[0]})") from None
