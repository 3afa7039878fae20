"""What a source returns, and which of the publisher's splits it reads; the stage takes care of the rest."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.data.columns import RESERVED
from granularity.stages.samples import options

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from granularity.stages.samples.options import Samples

NO_PATH = r"^/|(?:^|/)\.\.(?:/|$)|\x00|\n|^$"
NUMBERED = re.compile(r"(?:(?P<name>.*?)[-_.])??(?P<number>\d+)(?:-of-(?P<total>\d+))?")  # the name of a shard
UNLABELLED = "test"  # a split that publishers often give without labels; it is then left out, unless named
VALIDATION = ("val", "validation", "valid", "test")  # if samples.val is null: the first that the source has


@dataclass
class Source:
    """The images of a data set.

    Attributes:
        frame: one row per image, in an order that does not depend on the machine: `sample_id` (unique); `split`, the
            publisher's name of it (if any); `distribution`, ID or OOD (in domain-shift sets); where the bytes are.
            Every other column is a rank, categorical with the classes in the publisher's order (or text: then in
            alphabetical order). Several labels of an image are joined in one string by `|`.
        images: if the publisher ships arrays: the images as PNG files, in row order, to be stored with the table.
        root: the folder that `file` is relative to, unless it is `samples.root`.
        notes: what to record in the manifest.
        table: the file that names the images, if there is one, for messages.

    Where the bytes are: `file`, relative to the root with `/` between folders; all of it, or the row `row` of a Parquet
    file, or the `bytes` bytes at `offset` of an archive. With `images`, all four columns are absent.
    """

    frame: pd.DataFrame
    images: Iterable[bytes] | None = None
    root: Path | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    table: Path | None = None

    @property
    def ranks(self) -> list[str]:
        """The label columns."""
        return [column for column in self.frame.columns if column not in RESERVED]

    def complete(self, column: str, params: Samples) -> None:
        """Raise a GranularityError if an image has no value, or no valid class, in a column."""
        missing = self.frame[column].isna()
        if missing.any():
            first = self.frame[missing].iloc[0]
            packed = "row" in first or "offset" in first
            where = (self.root or params.root) / first["file"] if packed else self.table or params.root
            name = f"'{first['sample_id']}'" + (f" (row {first['row']})" if "row" in first else "")
            raise GranularityError(f"{where}: no known {column} for {missing.sum()} images, such as {name}")


def find(params: Samples, threads: int = 1) -> Source:
    """Return the images that a configuration names; GranularityError: no images, equal names, no split, or no path."""
    source = options.module(params).read(params, threads)
    where = source.table or params.root
    if not len(source.frame):
        raise GranularityError(f"{where}: contains no images in the layout of samples.source '{params.source}'")
    names = source.frame["sample_id"]
    if (twice := names.duplicated()).any():
        raise GranularityError(f"{where}: two images have the sample_id '{names[twice].iloc[0]}'")
    if source.table is not None and (out := source.frame["file"].str.contains(NO_PATH, na=True)).any():
        path = source.frame["file"][out].iloc[0]
        raise GranularityError(f"{where}: {path!r} is not a path below samples.root; write it relative to that folder")
    for column in ("split", "distribution"):
        if column in source.frame:
            source.complete(column, params)
    if "split" in source.frame and source.images is None:
        _leave_out(source, params, where)
    return source


def _leave_out(source: Source, params: Samples, where: Path | None) -> None:
    """Drop images of splits that are not asked for, and of a test split without labels: they need not have any."""
    published = {*source.frame["split"].unique()}
    splits = set(published)
    if UNLABELLED in splits and UNLABELLED not in named(params).values():
        labels = source.frame.loc[source.frame["split"] == UNLABELLED, source.ranks]
        if labels.shape[1] and labels.isna().all(axis=None):
            say(f"{where}: left out the split '{UNLABELLED}': its images have no labels")
            splits.remove(UNLABELLED)
    if unread := published - wanted(splits, params):
        source.frame = source.frame[~source.frame["split"].isin(unread)].reset_index(drop=True)


def named(params: Samples) -> dict[str, str]:
    """Return the splits that a configuration names, by key (`train`, `val`, `extra_splits[0]`, ...)."""
    extra = {f"extra_splits[{i}]": name for i, name in enumerate(params.extra_splits)}
    return {key: name for key, name in {"train": params.train, "val": params.val, **extra}.items() if name is not None}


def chosen(published: Collection[str], params: Samples) -> tuple[str | None, str | None]:
    """Return the published splits used as train and val (None: held out); GranularityError: one is missing."""
    for key, name in named(params).items():
        if name not in published:
            raise GranularityError(f"samples.{key}: there is no split '{name}'; the source has {sorted(published)}")
    if not published:
        return None, None
    train = params.train or "train"
    if train not in published:
        raise GranularityError(f"samples.train: name the split to train on; the source has {sorted(published)}")
    free = {*published} - {train, *params.extra_splits}
    val = params.val or next((name for name in VALIDATION if name in free), None)
    if val == train:
        raise GranularityError(f"samples.val: '{val}' is the training split")
    return train, val


def wanted(published: Collection[str], params: Samples) -> set[str]:
    """Return the published splits that a source has to read."""
    return {*chosen(published, params), *params.extra_splits} - {None}


def check_complete(shards: Sequence[tuple[Path, int, int | None]], split: str) -> None:
    """Raise a GranularityError if numbered files of a split are missing, or belong to another numbering.

    Each shard has its path, its number, and the total if its name states it; without a total, numbers start at 0 or 1.
    """
    file, numbers, totals = shards[-1][0], sorted(number for _, number, _ in shards), {total for _, _, total in shards}
    first = numbers[0] if totals == {None} and numbers[0] in (0, 1) else 0
    count = len(shards) if totals == {None} else max(total or 0 for total in totals)
    missing = {*range(first, first + count)} - {*numbers}
    if len(totals) > 1 or (len(shards) > count and not missing):
        raise GranularityError(f"{file.parent}: split '{split}' has files of two versions; download it again")
    if missing and (totals != {None} or len(shards) > 1):
        problem = f"lacks file number {min(missing)} of {count} (from {first})"
        raise GranularityError(f"{file.parent}: split '{split}' {problem}; download it again, or rename the files")


def pngs(images: Iterable[np.ndarray]) -> Iterator[bytes]:
    """Yield PNG files of arrays one at a time, because all arrays and files together would take twice the memory."""
    import numpy as np
    from PIL import Image

    for image in images:
        stream = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(image)).save(stream, "PNG")
        yield stream.getvalue()
