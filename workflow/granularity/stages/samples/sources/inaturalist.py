"""iNaturalist competition data sets of 2017, 2018, 2019 and 2021: one JSON file per split, in COCO's manner.

root/train_mini.json, root/val.json          {"images": [{"id", "file_name", ...}], "annotations": [{"image_id",
root/train_mini/..., root/val/...             "category_id", ...}], "categories": [{"id", "name", ...}], ...}

A split is called as its file is (`train_mini`, `val`, `train2018`). `file_name` is relative to root. Categories have
`name` and `supercategory` (2017), also `kingdom` to `genus` (2018; 2019 without `supercategory`), also
`specific_epithet` (2021). The names of 2018 and 2019 are obfuscated in the annotation files; the publisher gives the
true ones in `categories.json`, to take the place of the list of categories: samples.labels.

Source: "Annotation Format" and "Data" in 2017/README.md to 2021/README.md of github.com/visipedia/inat_comp.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, check_regular, open_regular
from granularity.base.strict_json import parse_json
from granularity.stages.samples.options import LABELS, Samples
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

IMAGES = {"train": 2_786_843, "train_mini": 600_000}  # with the 100,000 of val
OPTIONS = {"labels": LABELS}
LARGEST = 4 << 30  # bytes of an annotation file; the largest that is published has 1.2 GB


class _Split(NamedTuple):
    """The contents of one annotation file."""

    ids: array
    names: list[str]  # of files, in the order of ids
    image_ids: array  # of annotations
    category_ids: array
    categories: list[dict]


def files(samples: Samples) -> Iterator[Path]:
    yield from (samples.root / f"{name}.json" for name in _splits(samples))
    if samples.labels is not None:
        yield samples.root / samples.labels


def folders(samples: Samples) -> tuple[Path, ...]:
    return ()  # the JSON files name the images


def _splits(params: Samples) -> list[str]:
    """The splits that are asked for, or `train` and `val`."""
    val = params.val or ("val" if (params.root / "val.json").exists() else None)  # None: the stage holds some out
    return [*dict.fromkeys(name for name in (params.train or "train", val, *params.extra_splits) if name)]


def read(params: Samples, threads: int = 1) -> Source:
    """The images of the splits that are asked for, or of `train` and `val`.

    Ranks, and how many classes each has (`notes["distinct"]`, `notes["pairs"]`): see
    :mod:`granularity.stages.samples.formats.inaturalist_taxonomy`.

    Raises:
        GranularityError: a file is missing, truncated or not of this format; or an image without annotation, with
            several or listed twice, an annotation without image, an unknown category, a path that leaves root.
    """
    import pandas as pd

    from granularity.stages.samples.formats.inaturalist_taxonomy import distinct, pairs, ranks

    categories = None if params.labels is None else _true_names(params.root / params.labels)
    first, parts = None, []
    for name in _splits(params):
        file = params.root / f"{name}.json"
        split = _parse(file, params.root)
        if categories is None:
            categories, first = split.categories, file
        if first is not None and split.categories != categories:
            raise GranularityError(f"{file}: its categories differ from those of {first}: they are of two data sets")
        files, rows = _join(file, split, pd.Index([category["id"] for category in categories]))
        parts.append(pd.DataFrame({"sample_id": files, "split": name, "file": files, "category": rows}))
        del split
    frame = pd.concat(parts, ignore_index=True)
    rows = frame.pop("category").to_numpy()
    table = ranks(categories)
    for rank in table:
        column = table[rank].cat
        frame[rank] = pd.Categorical.from_codes(column.codes.to_numpy()[rows], column.categories)
    return Source(frame, notes={"distinct": distinct(categories), "pairs": pairs(categories)})


def _parse(file: Path, root: Path) -> _Split:
    split = _Split(array("q"), [], array("q"), array("q"), [])

    def keep(item: dict) -> dict | None:
        # called for each object as soon as it is read: as dicts, the 2.7 million images of 2021 would take 5 GB
        if "file_name" in item:
            split.names.append(item["file_name"])
            split.ids.append(item["id"])
        elif "image_id" in item:
            split.image_ids.append(item["image_id"])
            split.category_ids.append(item["category_id"])
        else:
            return item
        return None

    data = _load(file, root, keep)
    if not isinstance(data, dict) or not {"images", "categories"} <= data.keys():
        raise GranularityError(f"{file}: has no lists of images and categories; it is no annotation file")
    if "annotations" not in data:
        raise GranularityError(f"{file}: has no annotations (those of the test set are not published)")
    if not split.names:
        raise GranularityError(f"{file}: lists no images")
    for name in split.names:
        if not isinstance(name, str) or not name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise GranularityError(f"{file}: images: file_name {name!r} is no path below {root}")
    return split._replace(categories=_checked(file, data["categories"]))


def _join(file: Path, split: _Split, categories: pd.Index) -> tuple[pd.Series, np.ndarray]:
    """The file names, and for each the position of its category."""
    import numpy as np
    import pandas as pd

    ids, image_ids, category_ids = (np.asarray(one) for one in (split.ids, split.image_ids, split.category_ids))
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(np.diff(ids[order]) == 0)
    if again.size:
        raise GranularityError(f"{file}: images: two have the id {ids[order[again[0]]]}")
    place = order[np.minimum(np.searchsorted(ids, image_ids, sorter=order), len(ids) - 1)]
    strays = image_ids[ids[place] != image_ids]
    if strays.size:
        raise GranularityError(f"{file}: annotations: image_id {strays[0]} is not among the images")
    times = np.bincount(place, minlength=len(ids))
    if (times == 0).any():
        raise GranularityError(f"{file}: image '{split.names[times.argmin()]}' has no annotation")
    if (times > 1).any():
        name = split.names[times.argmax()]
        raise GranularityError(
            f"{file}: image '{name}' has {times.max()} annotations, but needs one; a file of bounding boxes does not do"
        )
    rows = np.empty(len(ids), dtype=np.int32)
    rows[place] = categories.get_indexer(category_ids)
    if (rows < 0).any():
        unknown = category_ids[rows[place] < 0][0]
        raise GranularityError(f"{file}: annotations: category_id {unknown} is not among the categories")
    try:
        return pd.Series(split.names, dtype="str"), rows
    except UnicodeEncodeError:
        raise GranularityError(f"{file}: images: a file_name holds half a surrogate pair, which is no text") from None


def _true_names(file: Path) -> list[dict]:
    data = _load(file, file.parent)
    return _checked(file, data.get("categories") if isinstance(data, dict) else data)


def _checked(file: Path, categories: Any) -> list[dict]:
    from granularity.stages.samples.formats.inaturalist_taxonomy import FIELDS

    if not isinstance(categories, list) or not categories or not all(isinstance(one, dict) for one in categories):
        raise GranularityError(f"{file}: categories: is no list of categories")
    seen = set()
    for category in categories:
        key, texts = category.get("id"), [category.get(field) for field in ("name", *FIELDS)]
        if not isinstance(key, int) or key in seen:
            raise GranularityError(f"{file}: categories: the id {key!r} is given twice, or is no whole number")
        seen.add(key)
        if not texts[0] or not all(text is None or isinstance(text, str) for text in texts):
            raise GranularityError(f"{file}: categories: id {key} has no name, or a rank that is no text")
        if any("\ud800" <= character <= "\udfff" for text in texts if text for character in text):
            raise GranularityError(f"{file}: categories: id {key} has half a surrogate pair in a name")
    return categories


def _load(file: Path, root: Path, keep: Callable[[dict], dict | None] | None = None) -> Any:
    try:
        with open_regular(file) as data, io.TextIOWrapper(data, "utf-8") as stream:
            if check_regular(file).st_size > LARGEST:
                raise GranularityError(f"{file}: is larger than {LARGEST:,} bytes; no annotation file is")
            start = stream.read(1)
            text = start + stream.read() if start in ("{", "[") else start
        return parse_json(text, str(file), "JSON file", keep)
    except MissingError:
        there = sorted(one.stem for one in root.glob("*.json"))
        raise GranularityError(
            f"{file}: is missing; samples.train and samples.val name annotation files, of which {root} has {there}"
        ) from None
    except UnicodeDecodeError:
        raise GranularityError(f"{file}: is no text in UTF-8") from None
    except (KeyError, TypeError, OverflowError) as error:  # from `keep`
        raise GranularityError(f"{file}: an image or annotation lacks a whole number as its id ({error})") from None
