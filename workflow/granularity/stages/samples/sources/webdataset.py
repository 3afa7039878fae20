"""WebDataset: tar archives in which the files of a sample are adjacent and share a name (docs/datasets.md).

Images are read in place. Apart from them, only LABELS are read, not members such as .pyd and .pth, which webdataset's
own decoders unpickle.

Layout: https://github.com/webdataset/webdataset, src/webdataset/tariterators.py (`base_plus_ext`, `group_by_keys`,
`tar_file_iterator`: the key is all before the first dot of the file name; extensions ignore case).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular, read_text
from granularity.base.strict_json import parse_json
from granularity.data.columns import RESERVED
from granularity.data.decoding import ENDINGS
from granularity.stages.samples.options import LABELS as LABELS_OPTION
from granularity.stages.samples.options import Samples
from granularity.stages.samples.source import NUMBERED, Source, check_complete, wanted

if TYPE_CHECKING:
    import pandas as pd

    from granularity.data.tars import Members

OPTIONS = {"labels": LABELS_OPTION}
ARCHIVE = re.compile(r"\.(tar|tgz|tar\.(gz|bz2|xz|zst))$")
SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
IMAGE_ENDINGS = {ending[1:] for ending in ENDINGS}
LABELS = ("cls", "json", "txt")  # a sample's labels; earlier ones win
MEMBER = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)
LABEL = "label"
LONGEST = 1 << 20  # most bytes of a label or of a JSON


def files(samples: Samples) -> Iterator[Path]:
    if samples.labels is not None:
        yield samples.root / samples.labels


def read(params: Samples, threads: int = 1) -> Source:
    """Return the samples, by archive and position in it; `sample_id` is the archive's name and the sample's key."""
    import pandas as pd
    import pyarrow as pa

    from granularity.data import tars
    from granularity.stages.samples.ranks import categorical, rank_name, repeated

    shards = _shards(params.root)
    if None not in shards.values():
        asked = wanted(set(shards.values()), params)
        shards = {file: split for file, split in shards.items() if split in asked}
    parts = [_samples(*pair) for pair in zip(shards, tars.scan([*shards], threads), strict=True)]
    counts, files = [len(part) for part in parts], [file.relative_to(params.root) for file in shards]
    frame = pd.concat(parts, ignore_index=True)
    labels = frame[[name for name in frame if name not in RESERVED]]
    frame = frame[["sample_id", "offset", "bytes"]].assign(file=repeated([file.as_posix() for file in files], counts))
    names = repeated([f"{file.with_suffix('').as_posix()}/" for file in files], counts)
    frame["sample_id"] = pd.Series(names, dtype="str") + frame["sample_id"]
    if None not in shards.values():
        frame["split"] = repeated([*shards.values()], counts)
    for rank in labels:
        column = categorical(pa.chunked_array([pa.array(labels[rank], pa.large_string())]))
        if rank == LABEL and params.labels is not None:
            column = _with_names(column, params.root / params.labels)
        else:
            column = column.remove_categories([name for name in column.categories if re.fullmatch(r"-\d+", name)])
        frame[rank_name(rank, column, frame.columns)] = column
    return Source(frame)


def _shards(root: Path) -> dict[Path, str | None]:
    """Return the archives, in order, with their split (None: the name does not say)."""
    splits: dict[Path, str | None] = {}
    numbered: dict[tuple[str, Path, str], list[tuple[Path, int, int | None]]] = {}
    for file in sorted(file for pattern in ("*", "*/*") for file in root.glob(pattern)):
        if not ARCHIVE.search(file.name) or any(part.startswith(".") for part in file.relative_to(root).parts):
            continue
        if file.suffix != ".tar":
            raise GranularityError(
                f"{file}: is compressed; unpack it to a plain .tar, because images are read in place"
            )
        match = NUMBERED.fullmatch(file.stem)
        name = (match["name"] or "") if match else file.stem
        folder = "" if file.parent == root else file.parent.name
        of_folder, words = (SPLITS.intersection(re.split(r"[-_. ]", part)) for part in (folder, name))
        if folder and (of_folder or len(words) != 1):
            splits[file] = folder
        else:
            splits[file] = words.pop() if len(words) == 1 else name or None
        if match:
            total = match["total"] and int(match["total"])
            numbered.setdefault((splits[file] or "train", file.parent, name), []).append(
                (file, int(match["number"]), total)
            )
    if not splits:
        raise GranularityError(f"{root}: contains no archives (train-000000.tar, train/000000.tar, ...)")
    if None in splits.values() and any(splits.values()):
        file = next(file for file, split in splits.items() if split is None)
        raise GranularityError(f"{file}: its name has no split, unlike other archives")
    for (split, _, _), shards in numbered.items():
        check_complete(shards, split)
    return splits


def _samples(file: Path, members: Members) -> pd.DataFrame:
    """Return the samples of one archive: `sample_id` (their key), `offset` and `bytes` of the image, ranks as text."""
    import pandas as pd

    named = ((MEMBER.fullmatch(name), place) for name, *place in zip(*members, strict=True))
    named = ((match[1], match[2].lower(), place) for match, place in named if match and not match[1].startswith("__"))
    rows = []
    with open_regular(file) as stream:
        for key, group in groupby(named, key=lambda member: member[0]):
            files = [(extension, place) for _, extension, place in group]
            places = dict(files)
            images = [extension for extension in places if extension in IMAGE_ENDINGS]
            if len(files) > len(places):
                raise GranularityError(f"{file}: two samples that follow each other have the key {key!r}")
            if len(images) != 1 or not places.keys() & {*LABELS}:
                needs = f"needs one image and a label (.{', .'.join(LABELS)})"
                raise GranularityError(f"{file}: the sample {key!r} {needs}: {[*places]}")
            row = dict(zip(("offset", "bytes"), places[images[0]], strict=True))
            labels: dict[str, str] = {}
            for extension in (suffix for suffix in LABELS if suffix in places):
                try:
                    labels = _labels(stream.fileno(), *places[extension], extension) | labels
                except (OSError, ValueError, GranularityError) as error:
                    where = f"{file}: the sample {key!r}: its .{extension}"
                    raise GranularityError(f"{where} is malformed ({error})") from None
            row |= labels
            rows.append({"sample_id": key.removeprefix("./"), **row})
    if not rows:
        raise GranularityError(f"{file}: contains no samples")
    return pd.DataFrame(rows)


def _labels(stream: int, offset: int, size: int, extension: str) -> dict[str, str]:
    """Return the ranks in one member of a sample, as text."""
    if size > LONGEST:
        raise ValueError(f"{size} bytes are too many for a label")
    data = os.pread(stream, size, offset)
    if extension != "json":
        return {LABEL: data.decode().strip()}
    content = parse_json(data, "it")
    if not isinstance(content, dict):
        raise ValueError("not an object of keys and values")
    if LABEL not in content and "cls" in content:
        content = {LABEL: content.pop("cls")} | content
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in content.items()}
    return {
        key: texts[key] for key, value in content.items() if key not in ("", *RESERVED) and isinstance(value, str | int)
    }


def _with_names(labels: pd.Categorical, file: Path) -> pd.Categorical:
    """Replace numeric labels by the names in a file; labels without a name become missing."""
    import pandas as pd

    names = read_text(file).splitlines()
    if not all(names) or len({*names}) < len(names):
        raise GranularityError(f"{file}: needs one class name per line, each once; a line is empty or appears twice")
    name_of = {str(number): name for number, name in enumerate(names)}
    return pd.Categorical(labels.map(name_of, na_action="ignore"), names)
