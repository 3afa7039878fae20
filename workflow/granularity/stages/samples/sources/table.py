"""A table of your own: one row per image, a column of paths and one per rank.

path,split,kind,species             samples.labels: images.csv (or .parquet), relative to samples.root
train/0001.jpg,train,animal,cat     samples.ranks: [kind, species]

Paths stand in a column `path`, `file`, `filename` or `image`, relative to samples.root. `split` and `distribution`
(ID, OOD) are optional. Every other column of text, whole numbers or truth values is a rank; its classes are in
alphabetical order, or that of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.regular import check_regular
from granularity.data.columns import RESERVED
from granularity.stages.samples.options import LABELS, Samples
from granularity.stages.samples.source import Source

OPTIONS = {"labels": LABELS}
PATHS = ("path", "file", "filename", "image")  # the first that the table has
DISTRIBUTIONS = ("ID", "OOD")


def files(samples: Samples) -> Iterator[Path]:
    if samples.labels is not None:
        yield samples.root / samples.labels


def folders(samples: Samples) -> tuple[Path, ...]:
    return ()  # the table names the images


def read(params: Samples, threads: int = 1) -> Source:
    """All images of the table, in its order. `sample_id` is the path.

    Raises:
        GranularityError: no table, no column of paths, a wanted rank that is no column; or a row without a path,
            rank, split or distribution, with a path that leaves samples.root, or with the path of an earlier row.
    """
    import numpy as np
    import pandas as pd

    from granularity.stages.samples.formats.columns import categorical

    if params.labels is None:
        raise GranularityError(
            "samples.labels: source 'table' needs the name of the CSV or Parquet table, relative to samples.root"
        )
    file = params.root / params.labels
    check_regular(file)
    table = _read_parquet(file) if file.suffix == ".parquet" else _read_csv(file, threads)
    if not table.num_rows:
        raise GranularityError(f"{file}: has no rows")
    path = next(name for name in PATHS if name in table.column_names)
    _check_paths(table[path], file)
    paths = table[path].to_pandas()
    columns = {"sample_id": paths, "file": paths}
    for name in table.column_names:
        if name == path:
            continue
        columns[name] = labels = categorical(table[name])
        odd = [text for text in labels.categories if "\n" in text]
        if odd and file.suffix != ".parquet":  # a quote that never ends swallows the rows up to the next one
            row = np.argmax(labels == odd[0]) + 1
            raise GranularityError(f"{file}: row {row}: its {name} goes over several lines; is a quote missing?")
        if name in ("split", "distribution", *params.ranks) and (labels.codes < 0).any():
            raise GranularityError(f"{file}: row {np.argmax(labels.codes < 0) + 1} has no {name}")
    if "distribution" in columns:
        unknown = [name for name in columns["distribution"].categories if name not in DISTRIBUTIONS]
        if unknown:
            row = np.argmax(columns["distribution"] == unknown[0]) + 1
            raise GranularityError(f"{file}: row {row}: distribution is '{unknown[0]}', but can only be ID or OOD")
        columns["distribution"] = columns["distribution"].set_categories(DISTRIBUTIONS)
    return Source(pd.DataFrame(columns))


def _read_csv(file: Path, threads: int):
    """Text alone: no value is taken for missing (a class can be called NA), nor for a number."""
    import pyarrow as pa
    import pyarrow.csv as csv

    try:
        with csv.open_csv(file, csv.ReadOptions(use_threads=False)) as stream:
            names = stream.schema.names
        kept = _columns(names, file)
        types = {name: pa.dictionary(pa.int32(), pa.string()) for name in kept[1:]} | {kept[0]: pa.string()}
        convert = csv.ConvertOptions(column_types=types, include_columns=kept, strings_can_be_null=False)
        try:
            return csv.read_csv(file, csv.ReadOptions(use_threads=threads > 1), convert_options=convert)
        except pa.ArrowInvalid:
            if threads == 1:
                raise
            return _read_csv(file, 1)  # only then does the message say which row it is
    except OSError as error:
        raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise GranularityError(f"{file}: is no CSV table in UTF-8 ({' '.join(str(error).split())})") from None


def _read_parquet(file: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import types

    from granularity.stages.samples.formats.columns import is_text

    try:
        schema = pq.read_schema(file)
        texts = {field.name for field in schema if is_text(field.type)}
        whole = {field.name for field in schema if types.is_integer(field.type) or types.is_boolean(field.type)}
        kept = _columns([name for name in schema.names if name in texts or name in whole], file)
        table = pq.ParquetFile(file, read_dictionary=[name for name in kept[1:] if name in texts]).read(columns=kept)
        table.validate(full=True)  # text may not be UTF-8
        return table.set_column(table.column_names.index(kept[0]), kept[0], table[kept[0]].cast(pa.string()))
    except OSError as error:
        raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise GranularityError(f"{file}: is truncated or no Parquet file ({' '.join(str(error).split())})") from None


def _columns(names: list[str], file: Path) -> list[str]:
    """The columns that are read: the one of paths first."""
    path = next((name for name in PATHS if name in names), None)
    if path is None:
        raise GranularityError(f"{file}: has no column of paths ({', '.join(PATHS)}); it has {names}")
    unread = {*PATHS, *RESERVED} - {"split", "distribution"}
    kept = [name for name in names if name not in unread and name and not name.startswith("__index_level_")]
    twice = [name for name in (path, *kept) if names.count(name) > 1]
    if twice:
        raise GranularityError(f"{file}: has two columns '{twice[0]}'")
    return [path, *kept]


def _check_paths(paths, file: Path) -> None:
    import numpy as np
    import pyarrow.compute as pc

    row = pc.index(pc.fill_null(pc.equal(paths, ""), True), True).as_py()
    if row >= 0:
        raise GranularityError(f"{file}: row {row + 1} has no path")
    row = pc.index(pc.match_substring_regex(paths, r"^/|(^|/)\.\.(/|$)|\x00|\n"), True).as_py()
    if row >= 0:
        raise GranularityError(
            f"{file}: row {row + 1}: {paths[row].as_py()!r} is no path below samples.root; write paths relative to "
            "it, without '..'"
        )
    if pc.count_distinct(paths).as_py() < len(paths):
        row = int(np.argmax(paths.to_pandas().duplicated()))
        raise GranularityError(f"{file}: row {row + 1}: '{paths[row]}' stands in an earlier row already")
