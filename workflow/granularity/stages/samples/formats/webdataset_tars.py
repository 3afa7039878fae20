"""One archive of a WebDataset: its samples, where their images lie, and their labels.

Layout: https://github.com/webdataset/webdataset, src/webdataset/tariterators.py (`base_plus_ext`, `group_by_keys`,
`tar_file_iterator`: the key is all before the first dot of the file name, extensions are in any case, names like
__meta__ are skipped).
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.regular import open_regular
from granularity.base.strict_json import parse_json
from granularity.data import tars
from granularity.data.columns import RESERVED

IMAGES = {"bmp", "gif", "jpeg", "jpg", "pbm", "pgm", "png", "pnm", "ppm", "tif", "tiff", "webp"}
LABELS = ("cls", "txt", "json")  # the first that a sample has
MEMBER = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)
META = re.compile(r"__[^/]*__($|/)")
LABEL = "label"
LONGEST = 1 << 20  # bytes of a label or of a JSON


class Part(NamedTuple):
    """The contents of one archive, as far as they are read."""

    keys: list[str]
    places: np.ndarray  # int64 [samples, 2]: offset and size of each image
    ranks: dict[str, tuple[np.ndarray, list[str]]]  # int32 [samples], -1 where missing; and the class names
    origin: str | None  # the extension that the labels come from


def read(files: list[Path], threads: int) -> Iterator[Part]:
    """Read each archive, in order; several archives at a time.

    Raises:
        GranularityError: a broken archive; a sample without an image or with several, or without a label, or with a
            malformed one; or a key that is there twice.
    """
    what = len(files), "reading archives", "archives"
    if threads == 1 or len(files) == 1:
        yield from track(map(read_one, files), *what)
        return
    with ProcessPoolExecutor(threads) as pool:  # as in tars.scan
        yield from track(pool.map(read_one, files, chunksize=max(1, min(16, len(files) // (8 * threads)))), *what)


def read_one(file: Path) -> Part:
    """Read one archive; see :func:`read`."""
    found = tars.members(file)
    keys: list[str] = []
    places: list[tuple[int, int]] = []
    usual = None  # the extension that the labels come from
    columns: dict[str, tuple[array, dict[str, int]]] = {}
    with open_regular(file) as stream:
        for key, members in _samples(found, file):
            images = [extension for extension in members if extension in IMAGES]
            if len(images) != 1:
                raise GranularityError(f"{file}: the sample {key!r} has {len(images)} images, not one: {[*members]}")
            origin = next((extension for extension in LABELS if extension in members), None)
            usual = usual or origin
            if origin is None or origin != usual:
                raise GranularityError(
                    f"{file}: the sample {key!r} has no label (.{usual or ', .'.join(LABELS)}): {[*members]}"
                )
            labels = _labels(stream.fileno(), key, members, origin, file)
            for rank, text in labels.items():
                codes, names = columns.setdefault(rank, (array("i"), {}))
                codes.extend([-1] * (len(keys) - len(codes)))
                codes.append(names.setdefault(text, len(names)) if text else -1)
            keys.append(key.removeprefix("./"))
            places.append(members[images[0]])
    ranks = {}
    for rank, (codes, names) in columns.items():
        codes.extend([-1] * (len(keys) - len(codes)))
        ranks[rank] = np.array(codes, dtype=np.int32), [*names]
    return Part(keys, np.array(places, dtype=np.int64).reshape(-1, 2), ranks, usual)


def _samples(found: tars.Members, file: Path) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Each sample's key, and where its members lie, by extension."""
    seen: set[str] = set()
    key, members = "", {}
    for name, offset, size in zip(*found, strict=True):
        match = MEMBER.fullmatch(name)
        if match is None or META.match(name):
            continue
        if match[1] != key:
            if members:
                yield key, members
            key, members = match[1], {}
            if key in seen:
                raise GranularityError(f"{file}: the key {key!r} is there twice, with other samples in between")
            seen.add(key)
        extension = match[2].lower()
        if extension in members:
            raise GranularityError(f"{file}: the sample {key!r} has two files .{extension}")
        members[extension] = offset, size
    if members:
        yield key, members


def _labels(stream: int, key: str, members: dict[str, tuple[int, int]], origin: str, file: Path) -> dict[str, str]:
    """The ranks of one sample, from its JSON and from where its label is."""
    labels = {}
    for extension in (name for name in dict.fromkeys((origin, "json")) if name in members):
        offset, size = members[extension]
        try:
            if size > LONGEST:
                raise ValueError(f"{size} bytes are more than any label has")
            data = os.pread(stream, size, offset)
            if extension == "json":
                labels |= _json(parse_json(data, f"{file}: the .json of {key!r}"), origin)
            else:
                labels[LABEL] = data.decode().strip()
        except OSError as error:
            raise GranularityError(f"{file}: cannot be read ({error.strerror or error})") from None
        except ValueError as error:
            raise GranularityError(f"{file}: the .{extension} of {key!r} is malformed ({error})") from None
    if not any(labels.values()):
        raise GranularityError(f"{file}: the .{origin} of {key!r} holds no label")
    return labels


def _json(content: Any, origin: str) -> dict[str, str]:
    """The ranks in a sample's JSON: text, whole numbers and truth values."""
    if not isinstance(content, dict):
        raise ValueError("not an object of keys and values")
    found = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in content.items()
        if key and isinstance(value, str | int) and key not in RESERVED
    }
    "".join([*found, *found.values()]).encode()  # half a surrogate pair is no text
    label = next((found.pop(key) for key in (LABEL, "cls") if key in found), None)
    return found if origin != "json" or label is None else {LABEL: label, **found}
