"""Folders of images called by WordNet ids, as ImageNet and its relatives come."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from granularity.base.errors import GranularityError
from granularity.data.endings import ENDINGS

if TYPE_CHECKING:
    import pandas as pd

WNID = re.compile(r"n[0-9]{8}")


class Part(NamedTuple):
    """Images of one split below one folder.

    Attributes:
        split: the name of the split.
        base: the folder, relative to samples.root.
        files: names relative to `base`, with `/` between folders.
        synsets: the synset of each image, or the one of all of them.
    """

    split: str
    base: str
    files: list[str]
    synsets: list[str] | str


def frame(parts: list[Part]) -> pd.DataFrame:
    """Columns `sample_id` (split/file), `split`, `file` and `synset` (classes in alphabetical order)."""
    import numpy as np
    import pandas as pd

    lengths = [len(part.files) for part in parts]
    splits, split_of_part = np.unique([part.split for part in parts], return_inverse=True)
    labels = [[part.synsets] if isinstance(part.synsets, str) else part.synsets for part in parts]
    classes = pd.Index(sorted({synset for some in labels for synset in some}))
    codes = [np.broadcast_to(classes.get_indexer(some), length) for some, length in zip(labels, lengths, strict=True)]
    return pd.DataFrame(
        {
            "sample_id": _joined([(part.split, part.files) for part in parts]),
            "split": pd.Categorical.from_codes(np.repeat(split_of_part, lengths), splits),
            "file": _joined([(part.base, part.files) for part in parts]),
            "synset": pd.Categorical.from_codes(np.concatenate(codes), classes),
        }
    )


def _joined(parts: list[tuple[str, list[str]]]) -> pd.Series:
    import pandas as pd

    columns = [pd.Series([f"{folder}/{file}" for file in files], dtype="str") for folder, files in parts]
    return pd.concat(columns, ignore_index=True)


def entries(folder: Path) -> tuple[list[str], list[str]]:
    """The names of the folders and of the images in a folder, each in alphabetical order, hidden ones left out.

    Raises:
        GranularityError: the folder cannot be read, a name is not UTF-8, or an archive has not been unpacked.
    """
    folders, images = [], []
    try:
        with os.scandir(folder) as found:
            for entry in found:
                name = entry.name
                if name.startswith("."):
                    continue
                if any("\ud800" <= character <= "\udfff" for character in name):  # Python's stand-ins for such bytes
                    raise GranularityError(f"{str(folder / name)!r}: its name is not UTF-8; rename it")
                if entry.is_dir():
                    folders.append(name)
                elif os.path.splitext(name)[1].lower() in ENDINGS:
                    images.append(name)
                elif name.endswith((".tar", ".tar.gz", ".tgz", ".zip")):
                    raise GranularityError(f"{folder / name}: is still packed; unpack it, or move it elsewhere")
    except OSError as error:
        raise GranularityError(f"{folder}: cannot be read ({error.strerror})") from None
    return sorted(folders), sorted(images)


def stem(name: str) -> str:
    """The name of an image without its extension, if it has one."""
    return name[: -len(ending)] if (ending := os.path.splitext(name)[1]).lower() in ENDINGS else name


def images(folder: Path) -> list[str]:
    """The images in the folder of a class.

    Raises:
        GranularityError: there are none.
    """
    found = entries(folder)[1]
    if not found:
        raise GranularityError(f"{folder}: holds no images; was it unpacked whole?")
    return found
