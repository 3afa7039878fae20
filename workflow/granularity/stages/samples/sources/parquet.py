"""Image data sets in Parquet, as on the Hugging Face hub; which files they are: docs/datasets.md.

Only the splits that the configuration asks for are read, because the hub's test splits are often unlabelled.

Layout: https://github.com/huggingface/datasets, src/datasets/data_files.py (names of files) and features/features.py
(`Features.arrow_schema`, `ClassLabel`, and `_to_yaml_list`: the README.md, which numbers the names of classes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.regular import MissingError, check_regular, read_text
from granularity.base.strict_json import parse_json
from granularity.data.columns import RESERVED
from granularity.stages.samples.options import Condition, Samples
from granularity.stages.samples.source import Source, check_complete, wanted

if TYPE_CHECKING:
    import pyarrow as pa

NEEDS_ROOT = False
HUB = (
    "For `parquet`, instead of root: a data set of the Hugging Face hub, ORG/NAME or ORG/NAME@REVISION. "
    "Downloaded once."
)
COLUMN = "For `parquet`: the column of the images (null: the only such column)."
OPTIONS = {
    "hub": (str | None, Field(None, description=HUB)),
    "image_column": (str | None, Field(None, description=COLUMN)),
}
SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{4,})-of-(?P<total>\d{4,})(-[0-9a-f]{16})?")
README = "README.md"
CONVERTED = "refs/convert/parquet"  # the hub's own conversions of other formats


class Shard(NamedTuple):
    """One Parquet file of a split."""

    split: str
    number: int
    total: int | None  # number of files of the split, if the name states it
    folder: Path  # of the whole data set
    file: Path


def check(samples: Samples, conditions: Sequence[Condition]) -> Iterator[str]:
    """Complain unless exactly one of root and hub is set."""
    if (samples.root is None) == (samples.hub is None):
        yield "root: source 'parquet' needs the folder of the data set, or hub; set one of the two"


def files(samples: Samples) -> Iterator[Path]:
    """Yield the file with class names, if there is a root; a revision on the hub does not change."""
    if samples.root is not None:
        yield samples.root / README


def read(params: Samples, threads: int = 1) -> Source:
    """Return the images of the requested splits, in the order of the files; `sample_id` numbers them within a split."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from granularity.stages.samples.ranks import categorical, numbered, rank_name, repeated

    root = params.root if params.hub is None else download(params.hub)
    shards = _shards(root)
    asked = wanted({shard.split for shard in shards}, params)
    shards = [shard for shard in shards if shard.split in asked]
    for split in asked:
        check_complete([(part.file, part.number, part.total) for part in shards if part.split == split], split)
    files, splits = [shard.file for shard in shards], [shard.split for shard in shards]
    labels_of = partial(_labels, _described(root / README, shards[0].folder.name), params)
    with ThreadPoolExecutor(threads) as pool:
        results = track(pool.map(labels_of, files), len(files), "reading labels", "files")
        rows, tables, named = zip(*results, strict=True)
    for file, table, names in zip(files, tables, named, strict=True):
        if (table.column_names, names) != (tables[0].column_names, named[0]):
            raise GranularityError(f"{file}: has other label columns or class names than {files[0]}")
    places = [file.relative_to(root).as_posix() for file in files]
    frame = pd.DataFrame({"split": repeated(splits, rows), "file": repeated(places, rows)})
    frame["row"] = np.concatenate([np.arange(count) for count in rows])
    numbers = frame.groupby("split", observed=True).cumcount()
    ids = [f"{split}/{number:08d}" for split, number in zip(frame["split"], numbers, strict=True)]
    frame.insert(0, "sample_id", pd.Series(ids, dtype="str"))
    labels, names = pa.concat_tables(tables), named[0]
    for name in labels.column_names:
        if name in names:  # -1 or null is no class
            column = numbered(labels[name].fill_null(-1).to_numpy(), names[name])
        else:
            column = categorical(labels[name])
        frame[rank_name(name, column, [*labels.column_names, *frame.columns])] = column
    return Source(frame, root=root)


def download(hub: str) -> Path:
    """Download ORG/NAME[@REVISION], or the hub's conversion, and return its folder in huggingface_hub's cache."""
    from huggingface_hub import snapshot_download

    name, _, revision = hub.partition("@")
    for tried in (revision,) if revision else (None, CONVERTED):
        try:
            files = ["*.parquet", README]
            root = Path(snapshot_download(name, repo_type="dataset", revision=tried, allow_patterns=files))
        except Exception as error:  # from any of half a dozen libraries
            reason = " ".join(str(error).split()) or type(error).__name__
            raise GranularityError(f"samples.hub: {hub}: cannot be downloaded ({reason[:300]})") from None
        if any(root.rglob("*.parquet")):
            return root
    raise GranularityError(f"samples.hub: {hub}: contains no Parquet files")


def _shards(root: Path) -> list[Shard]:
    shards = []
    for file in (file for pattern in ("*.parquet", "*/*.parquet", "*/*/*.parquet") for file in root.glob(pattern)):
        match = SHARD.fullmatch(file.stem)
        if any(part.startswith(".") for part in file.relative_to(root).parts):
            continue
        if match:
            shards.append(Shard(match["split"], int(match["number"]), int(match["total"]), file.parent, file))
        elif file.stem.isdecimal():
            shards.append(Shard(file.parent.name, int(file.stem), None, file.parent.parent, file))
        else:
            shards.append(Shard(file.stem, 0, 1, file.parent, file))
    if not shards:
        raise GranularityError(f"{root}: contains no Parquet files (train.parquet, data/train-00000-of-00002.parquet)")
    folders = sorted({str(shard.folder) for shard in shards})
    if len(folders) > 1:
        raise GranularityError(
            f"{root}: contains several data sets; set samples.root to one of their folders, {folders}"
        )
    return sorted(shards, key=lambda shard: (shard.split, shard.number, shard.file))


def _described(file: Path, config: str) -> dict[str, Any]:
    """Return the class names of each label column from the README.md; empty if it has none.

    They are in its YAML header, for one data set, or for several by name: dataset_info: {features: [{name: label,
    dtype: {class_label: {names: {'0': cat, '1': dog}}}}]}
    """
    import yaml

    try:
        header = re.match(r"---[^\S\n]*\n(.*?)\n---", read_text(file), re.DOTALL)
        info = yaml.safe_load(header[1])["dataset_info"] if header and "dataset_info" in header[1] else {"features": []}
        if isinstance(info, list):
            info = next(entry for entry in info if len(info) == 1 or entry["config_name"] == config)
        kinds = {entry["name"]: entry.get("dtype") for entry in info["features"]}
        return {name: kind["class_label"]["names"] for name, kind in kinds.items() if isinstance(kind, dict)}
    except (MissingError, LookupError, TypeError, AttributeError, StopIteration):
        return {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # from the parser of a value, such as a date
        reason = " ".join(str(error).split())[:200]
        raise GranularityError(f"{file}: its header is not YAML ({reason})") from None


def _labels(described: dict[str, Any], params: Samples, file: Path) -> tuple[int, pa.Table, dict[str, list[str]]]:
    """Return one file's number of rows, its label columns (text or numbers), and the class names of numeric columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from granularity.data.images import image_column
    from granularity.stages.samples.ranks import is_text, no_class

    check_regular(file)
    try:
        meta = pq.read_metadata(file)
        schema = meta.schema.to_arrow_schema()
        image_column(schema, file, params.image_column)
        class_names, kinds, names = described | _features(schema, file), {}, {}
        fields = [field for field in schema if field.name not in RESERVED]
        for field in fields:
            no_class(field, params, file)
            if pa.types.is_integer(field.type) and field.name in {*class_names, *params.ranks}:
                kinds[field.name], names[field.name] = pa.int64(), _names(class_names.get(field.name), field.name, file)
        kinds |= {field.name: pa.large_string() for field in fields if is_text(field.type)}
        table = pq.ParquetFile(file).read(columns=[*kinds])
        table.validate(full=True)  # text may not be UTF-8
        return meta.num_rows, table.select([*kinds]).cast(pa.schema(kinds)), names
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise GranularityError(f"{file}: is truncated or not a Parquet file ({' '.join(str(error).split())})") from None


def _features(schema: pa.Schema, file: Path) -> dict[str, Any]:
    metadata = (schema.metadata or {}).get(b"huggingface", b'{"info": {"features": {}}}')
    try:
        features = parse_json(metadata, f"{file}: the metadata 'huggingface' of its schema")["info"]["features"]
        # a list belongs to a sequence
        kinds = {name: kind for name, kind in features.items() if isinstance(kind, dict)}
        return {name: kind["names"] for name, kind in kinds.items() if kind.get("_type") == "ClassLabel"}
    except (LookupError, TypeError, AttributeError):
        raise GranularityError(f"{file}: the metadata 'huggingface' of its schema are malformed") from None


def _names(names: Any, column: str, file: Path) -> list[str]:
    """Return the names of a column's classes, by number; a README.md maps numbers to names."""
    if names is None:
        where = "in the schema's metadata 'huggingface' or the README.md (dataset_info)"
        raise GranularityError(f"{file}: column '{column}' has numbers without names {where}")
    if isinstance(names, dict) and {*map(str, names)} == {str(i) for i in range(len(names))}:
        names = [names[key] for key in sorted(names, key=int)]
    names = [str(name) for name in names] if isinstance(names, list) else []
    if not names or len({*names}) < len(names):
        raise GranularityError(f"{file}: the class names of column '{column}' are malformed, or one appears twice")
    return names
