"""Image data sets in Parquet, as on the Hugging Face hub.

A column of images (`img` or `image`: bytes and path), and labels: integers whose class names stand in the schema's
metadata `huggingface`, or else in the README.md; or text. The names of the files give the splits:

train-00000-of-00002.parquet    also in a folder (data, plain_text, ...), also with a fingerprint at the end
train.parquet
default/train/0000.parquet      the hub's own conversions (revision refs/convert/parquet)

A label column whose class names are all WordNet ids is called `synset`, whatever its own name, unless there is a
`synset` already. Only the splits that the configuration asks for are read: the hub's test splits are often unlabelled.

Layout: https://github.com/huggingface/datasets, src/datasets/features/features.py (`Features.arrow_schema`,
`ClassLabel`), and see :mod:`granularity.stages.samples.formats.hub`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.regular import check_regular
from granularity.base.strict_json import parse_json
from granularity.data.columns import RESERVED
from granularity.stages.samples.formats import hub
from granularity.stages.samples.options import Condition, Samples
from granularity.stages.samples.published import wanted
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import pandas as pd

NEEDS_ROOT = False
OPTIONS = {
    "hub": (
        str | None,
        Field(
            None,
            description="For `parquet`, instead of root: a data set of the Hugging Face hub, ORG/NAME or "
            "ORG/NAME@REVISION. Downloaded once.",
        ),
    ),
}


class Part(NamedTuple):
    """The contents of one file: its label columns, and which of them have classes that the publisher numbered."""

    rows: int
    columns: dict[str, pd.Categorical]
    numbered: list[str]


def check(samples: Samples, conditions: Sequence[Condition]) -> Iterator[str]:
    """Complain unless the data set has one place: root or hub."""
    if (samples.root is None) == (samples.hub is None):
        yield "root: source 'parquet' needs the folder that holds the data set, or hub; one of the two"


def files(samples: Samples) -> Iterator[Path]:
    """The file with class names, if root has one; a revision of the hub does not change."""
    if samples.root is not None:
        yield samples.root / hub.README


def read(params: Samples, threads: int = 1) -> Source:
    """The images of the splits asked for, in the order of the files; `sample_id` numbers those of a split.

    Raises:
        GranularityError: no Parquet files, or those of several data sets; a missing, truncated or empty one, or one
            without images; class names that are malformed or differ between files; a label without a name; or the
            hub cannot be reached.
    """
    import numpy as np

    from granularity.stages.samples.formats.columns import joined, rank_name

    root = params.root
    if params.hub is not None:
        root = hub.download(params.hub)
    shards = hub.shards(root)
    asked = wanted({shard.split for shard in shards}, params)
    shards = [shard for shard in shards if shard.split in asked]
    for split in asked:
        hub.check_complete([shard for shard in shards if shard.split == split])
    files = [shard.file for shard in shards]
    labels_of = partial(_labels, hub.described(root, shards[0].folder.name), params.ranks)
    with ThreadPoolExecutor(threads) as pool:
        parts = list(track(pool.map(labels_of, files), len(files), "reading labels", "files"))
    first = parts[0]
    for file, part in zip(files, parts, strict=True):
        if (part.columns.keys(), part.numbered) != (first.columns.keys(), first.numbered) or any(
            not part.columns[name].categories.equals(first.columns[name].categories) for name in first.numbered
        ):
            raise GranularityError(f"{file}: has other label columns or class names than {files[0]}")
    frame = _places(shards, [part.rows for part in parts], root)
    for name in first.columns:
        labels = joined([part.columns[name] for part in parts], name in first.numbered)
        rank = rank_name(name, labels, [*first.columns, *frame.columns])
        unlabelled = np.flatnonzero(labels.codes < 0)
        if rank in params.ranks and len(unlabelled):
            file, row = frame.loc[unlabelled[0], ["file", "row"]]
            raise GranularityError(f"{root / file}: row {row} has no {rank} (it is -1, null or empty text)")
        frame[rank] = labels
    return Source(frame, root=root)


def _places(shards: list[hub.Shard], rows: list[int], root: Path) -> pd.DataFrame:
    """The columns that are not labels."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    of_shard = np.repeat(np.arange(len(shards)), rows)
    splits = list(dict.fromkeys(shard.split for shard in shards))
    split = np.array([splits.index(shard.split) for shard in shards])[of_shard]
    number = np.arange(len(of_shard)) - np.searchsorted(split, split)
    number = pc.utf8_lpad(pa.array(number).cast(pa.large_string()), 8, "0")
    name = pa.array(splits, pa.large_string()).take(pa.array(split))
    return pd.DataFrame(
        {
            "sample_id": pc.binary_join_element_wise(name, number, pa.scalar("/", pa.large_string())).to_pandas(),
            "split": pd.Categorical.from_codes(split, splits),
            "file": pd.Categorical.from_codes(of_shard, [shard.file.relative_to(root).as_posix() for shard in shards]),
            "row": np.arange(len(of_shard)) - (np.cumsum(rows) - rows)[of_shard],
        }
    )


def _labels(described: dict[str, Any], ranks: list[str], file: Path) -> Part:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from granularity.data.images import image_column
    from granularity.stages.samples.formats.columns import categorical, is_text

    check_regular(file)
    try:
        meta = pq.read_metadata(file)
        schema = meta.schema.to_arrow_schema()
        if image_column(schema) is None:
            raise GranularityError(f"{file}: has no column of images (img or image, of bytes and path)")
        if not meta.num_rows:
            raise GranularityError(f"{file}: has no rows")
        names = described | _features(schema, file)
        fields = [field for field in schema if field.name not in RESERVED]
        texts = [field.name for field in fields if is_text(field.type)]
        numbers = [field.name for field in fields if pa.types.is_integer(field.type)]
        for name in numbers:
            if name in ranks and name not in names:
                raise GranularityError(
                    f"{file}: column '{name}' has numbers without names: there are none in the metadata 'huggingface' "
                    "of the schema, and none in the README.md (dataset_info)"
                )
        numbered = [name for name in numbers if name in names]
        table = pq.ParquetFile(file, read_dictionary=texts).read(columns=[*numbered, *texts])
        table.validate(full=True)  # text may not be UTF-8
        columns = {
            name: _numbered(table[name].cast(pa.int64()), _class_names(names[name], name, file), name, file)
            for name in numbered
        }
    except OSError as error:
        raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise GranularityError(f"{file}: is truncated or no Parquet file ({' '.join(str(error).split())})") from None
    return Part(meta.num_rows, columns | {name: categorical(table[name]) for name in texts}, numbered)


def _features(schema, file: Path) -> dict[str, Any]:
    """The class names of each label column according to the metadata of a file."""
    metadata = (schema.metadata or {}).get(b"huggingface", b'{"info": {"features": {}}}')
    try:
        features = parse_json(metadata, f"{file}: the metadata 'huggingface' of its schema")["info"]["features"]
        return {name: one["names"] for name, one in features.items() if one.get("_type") == "ClassLabel"}
    except (LookupError, TypeError, AttributeError):
        raise GranularityError(f"{file}: the metadata 'huggingface' of its schema are malformed") from None


def _class_names(names: Any, column: str, file: Path) -> list[str]:
    if isinstance(names, dict) and {*map(str, names)} == {str(i) for i in range(len(names))}:
        names = [names[key] for key in sorted(names, key=int)]
    names = [str(name) for name in names] if isinstance(names, list) else []
    if not names or len({*names}) < len(names):
        raise GranularityError(f"{file}: the class names of column '{column}' are malformed, or one is there twice")
    return names


def _numbered(column, names: list[str], name: str, file: Path) -> pd.Categorical:
    import numpy as np
    import pandas as pd

    codes = column.fill_null(-1).to_numpy()
    if codes.max() >= len(names):
        row = int(np.argmax(codes >= len(names)))
        raise GranularityError(f"{file}: row {row}: {name} is {codes[row]}, but only {len(names)} classes have names")
    return pd.Categorical.from_codes(np.maximum(codes, -1), names)
