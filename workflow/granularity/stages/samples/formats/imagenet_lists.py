"""Text files with one image of ImageNet-21k per line: its labels, or just its name. Compressed, if called *.gz."""

from __future__ import annotations

import gzip
import re
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular
from granularity.data.wordnet import SEPARATOR
from granularity.stages.samples.formats.imagenet_folders import WNID, stem

LINE = re.compile(r"([^\t,]+)[\t,](.+)")
LONGEST = 1 << 16  # bytes of a line
BATCH = 100_000  # lines; as Python strings, those of 12.7 million images would take 1 GB


def relabel(codes: np.ndarray, names: list[str], ids: pd.Series, file: Path) -> None:
    """Give the images in a list its labels: changes `codes` (of all images), and adds to `names` (of the codes).

    Raises:
        GranularityError: the file is missing or malformed, or lists an image twice, or one that there is not.
    """
    known = {name: code for code, name in enumerate(names)}
    given = array("i")

    def images() -> Iterator[str]:
        for number, line in _lines(file):
            match = LINE.fullmatch(line)
            synsets = sorted(set(re.split("[ ;|]+", match[2].strip()))) if match else []
            if not synsets or not all(WNID.fullmatch(synset) for synset in synsets):
                raise GranularityError(
                    f"{file}: line {number}: '{line[:80]}' is not an image, a tab or comma, and synsets like n01440764"
                )
            given.append(known.setdefault(SEPARATOR.join(synsets), len(known)))
            yield match[1]

    place = _places(ids, _sample_ids(images()), file)
    names.extend(list(known)[len(names) :])
    rows = place >= 0
    codes[rows] = np.asarray(given)[place[rows]]


def listed(ids: pd.Series, file: Path) -> np.ndarray:
    """Whether each image is in a list: one bool per image.

    Raises:
        GranularityError: the file is missing or empty, or lists an image twice, or one that there is not.
    """
    return _places(ids, _sample_ids(line for _, line in _lines(file)), file) >= 0


def _sample_ids(names: Iterator[str]) -> pd.Series:
    """The sample_id of images that are named with or without extension and folder."""
    parts, batch = [pd.Series([], dtype="str")], []
    for name in names:
        name = stem(name.strip())
        batch.append(name if "/" in name else f"{name.partition('_')[0]}/{name}")
        if len(batch) == BATCH:
            parts.append(pd.Series(batch, dtype="str"))
            batch.clear()
    return pd.concat([*parts, pd.Series(batch, dtype="str")], ignore_index=True)


def _places(ids: pd.Series, names: pd.Series, file: Path) -> np.ndarray:
    """For each image its place in a list, or -1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(names):
        raise GranularityError(f"{file}: lists no images")
    values = pa.array(names)
    if pc.count_distinct(values).as_py() < len(values):
        raise GranularityError(f"{file}: lists image '{names[names.duplicated()].iloc[0]}' twice")
    place = pc.fill_null(pc.index_in(pa.array(ids), value_set=values), -1).to_numpy()
    hit = np.zeros(len(names), dtype=bool)
    hit[place[place >= 0]] = True
    if not hit.all():
        name = names.iloc[hit.argmin()]
        raise GranularityError(f"{file}: lists {(~hit).sum()} images that are not there, such as '{name}'")
    return place


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with open_regular(file) as raw, gzip.GzipFile(fileobj=raw) if file.suffix == ".gz" else raw as stream:
            for number, data in enumerate(iter(lambda: stream.readline(LONGEST), b""), 1):
                if len(data) == LONGEST:
                    raise GranularityError(f"{file}: line {number} is longer than any label")
                if line := data.decode("utf-8").strip():
                    yield number, line
    except UnicodeDecodeError:
        raise GranularityError(f"{file}: is no text file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise GranularityError(f"{file}: cannot be read ({error})") from None
