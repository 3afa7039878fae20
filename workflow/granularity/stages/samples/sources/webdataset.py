"""WebDataset: tar archives in which the files of a sample lie next to one another and share a name.

n02124075_17.jpg    the image
n02124075_17.cls    its label: a number or text; or else .txt, or .json with a key `label` or `cls`
n02124075_17.json   {"genus": "Felis", ...}: every key with text, a whole number or a truth value is a rank, too

The split is the folder that an archive lies in (train/000000.tar), or what its name says before the number of the
shard: `val` for val-000000.tar, `train` for imagenet1k-train-0000.tar. Only the splits that the configuration asks for
are read. `samples.labels` is a file of class names, one per line, for labels that are numbers from 0. A rank whose
classes are all WordNet ids is called `synset`. The images are read in place, never unpacked.

Layout: see :mod:`granularity.stages.samples.formats.webdataset_tars`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import read_text
from granularity.stages.samples.options import LABELS, Samples
from granularity.stages.samples.published import wanted
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

OPTIONS = {"labels": LABELS}
ARCHIVE = re.compile(r"\.(tar|tgz|tar\.(gz|bz2|xz|zst))$")
SHARD = re.compile(r"(?:(.*?)[-_.])?\d+(?:-of-\d+)?")
SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}


def files(samples: Samples) -> Iterator[Path]:
    if samples.labels is not None:
        yield samples.root / samples.labels


def read(params: Samples, threads: int = 1) -> Source:
    """The samples of the splits asked for, by the name of their archive and then their place in it.

    `sample_id` is the name of the archive and the key of the sample.

    Raises:
        GranularityError: no archives, or a compressed or broken one; a sample without an image or with several, or
            without a label; a key that is there twice; a label that is malformed, or not in the file of class names;
            or an empty split.
    """
    import numpy as np
    import pandas as pd

    from granularity.stages.samples.formats import webdataset_tars
    from granularity.stages.samples.formats.columns import joined, rank_name

    shards = _shards(params.root)
    if None not in shards.values():
        asked = wanted(set(shards.values()), params)
        shards = {file: split for file, split in shards.items() if split in asked}
    ids, parts, origin = [], [], None
    for file, part in zip(shards, webdataset_tars.read([*shards], threads), strict=True):
        prefix = file.relative_to(params.root).with_suffix("").as_posix()
        ids.append(pd.Series([f"{prefix}/{key}" for key in part.keys], dtype="str"))
        parts.append(part._replace(keys=[]))  # 12.7 million Python strings are 1 GB
        if origin and part.origin and part.origin != origin:
            raise GranularityError(f"{file}: its labels are .{part.origin} files, but in the archives before .{origin}")
        origin = origin or part.origin
    counts = np.array([len(part.places) for part in parts])
    names = [file.relative_to(params.root).as_posix() for file in shards]
    frame = pd.DataFrame({"sample_id": pd.concat(ids, ignore_index=True)})
    if None not in shards.values():
        frame["split"] = _splits([*shards.values()], counts, params.root)
    frame["file"] = pd.Categorical.from_codes(np.repeat(np.arange(len(names)), counts), names)
    frame["offset"], frame["bytes"] = np.concatenate([part.places for part in parts]).T
    for rank in dict.fromkeys(rank for part in parts for rank in part.ranks):
        missing = [(np.full(count, -1, dtype=np.int32), []) for count in counts]
        pairs = [part.ranks.get(rank, none) for part, none in zip(parts, missing, strict=True)]
        labels = joined([pd.Categorical.from_codes(codes, pd.Index(text, dtype="str")) for codes, text in pairs], False)
        if rank == webdataset_tars.LABEL and params.labels is not None:
            labels = _with_names(labels, params.root / params.labels, frame)
        else:
            labels = labels.remove_categories([name for name in labels.categories if re.fullmatch(r"-\d+", name)])
        name = rank_name(rank, labels, frame.columns)
        if name in params.ranks and (labels.codes < 0).any():
            sample = frame["sample_id"].iloc[np.argmax(labels.codes < 0)]
            raise GranularityError(f"{params.root}: the sample '{sample}' has no {name} (or it is empty, or negative)")
        frame[name] = labels
    return Source(frame)


def _shards(root: Path) -> dict[Path, str | None]:
    """The archives, in order, with their split; None where the name says nothing of it."""
    found: dict[Path, str | None] = {}
    for file in sorted(file for pattern in ("*", "*/*") for file in root.glob(pattern)):
        if not ARCHIVE.search(file.name) or any(part.startswith(".") for part in file.relative_to(root).parts):
            continue
        if file.suffix != ".tar":
            raise GranularityError(f"{file}: is compressed; images are read in place, so make a plain .tar of it first")
        if any("\ud800" <= character <= "\udfff" for character in str(file)):  # Python's stand-ins for such bytes
            raise GranularityError(f"{str(file)!r}: its name is not UTF-8; rename it")
        match = SHARD.fullmatch(file.stem)
        name = (match[1] or "") if match else file.stem
        words = SPLITS.intersection(re.split(r"[-_. ]", name))
        found[file] = file.parent.name if file.parent != root else words.pop() if len(words) == 1 else name or None
    if not found:
        raise GranularityError(f"{root}: holds no archives (train-000000.tar, train/000000.tar, ...)")
    if None in found.values() and any(found.values()):
        file = next(file for file, split in found.items() if split is None)
        raise GranularityError(f"{file}: its name says no split, but those of other archives do")
    return found


def _splits(splits: list[str], counts: np.ndarray, root: Path) -> pd.Categorical:
    import numpy as np
    import pandas as pd

    names = list(dict.fromkeys(splits))
    codes = np.repeat([names.index(split) for split in splits], counts)
    for name, count in zip(names, np.bincount(codes, minlength=len(names)), strict=True):
        if not count:
            raise GranularityError(f"{root}: the archives of split '{name}' hold no samples")
    return pd.Categorical.from_codes(codes, names)


def _with_names(labels: pd.Categorical, file: Path, frame: pd.DataFrame) -> pd.Categorical:
    """Labels that are numbers, with the names that a file gives them."""
    import numpy as np
    import pandas as pd

    from granularity.stages.samples.formats.columns import NUMBER

    names = read_text(file).splitlines()
    if not all(names) or len({*names}) < len(names):
        raise GranularityError(f"{file}: needs one class name per line, each once; it has an empty line or one twice")
    for text in labels.categories:
        if not NUMBER.fullmatch(text) or not 0 <= int(text) < len(names):
            sample = frame["sample_id"].iloc[np.argmax(labels == text)]
            raise GranularityError(
                f"{file}: has {len(names)} class names, and the label of the sample '{sample}' is '{text}'; it has to "
                f"be a number from 0 to {len(names) - 1}"
            )
    code_of = np.array([*map(int, labels.categories), -1])  # the last is for missing ones
    return pd.Categorical.from_codes(code_of[labels.codes], names)
