"""ImageNet-21k: every synset that ImageNet has, one folder or tar per synset.

root/n01440764/n01440764_10026.JPEG     folders, or
root/n01440764.tar                      the publisher's archives (those in fall11_whole.tar, winter21_whole.tar.gz), in
                                        which images are read in place

`sample_id` is n01440764/n01440764_10026. Rank: `synset`; an image with several has them joined by `|`.

`samples.labels`: the images with other labels than the synset of their folder, one per line, as
`n01440764/n01440764_10026<tab>n01440764 n02512053` (or a comma for the tab; `;` or `|` for the spaces; with the
extension; without the folder, if the name begins with it; compressed, if called *.gz).

The validation split, which the publisher does not have: if `samples.val` is the name of a file below root, the images
in it, one per line; else the `samples.validation` images (a count, or a share) whose sample_id has the smallest
SHA-256. That depends on nothing but the images that there are.

Source: image-net.org/download-images ("ImageNet21K"); the archives' members as in the preprocessing scripts of
github.com/Alibaba-MIIL/ImageNet21K.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.data import tars
from granularity.data.endings import ENDINGS
from granularity.stages.samples.formats.imagenet_folders import WNID, entries, stem
from granularity.stages.samples.options import LABELS, Samples
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

IMAGES = 14_197_122
OPTIONS = {"labels": LABELS}
CHUNK = 100_000


def files(samples: Samples) -> Iterator[Path]:
    """The lists of labels and of validation images."""
    yield from (samples.root / name for name in (samples.labels, samples.val) if name is not None)


def read(params: Samples, threads: int = 1) -> Source:
    """All images, with a validation split that does not depend on the seed.

    Raises:
        GranularityError: root holds both folders and archives, or a broken archive; the list of labels or of
            validation images is malformed or names an image that is not there; or too few images to split.
    """
    import numpy as np
    import pandas as pd

    from granularity.stages.samples.formats import imagenet_lists

    root = params.root
    folders, archives = _synsets(root)
    if folders and archives:
        raise GranularityError(f"{root}: holds both folders and archives, such as {folders[0]} and {archives[0]}")
    frame, counts = _archives(root, archives, threads) if archives else _folders(root, folders, threads)
    if not len(frame):
        return Source(frame)
    names = [name.removesuffix(".tar") for name in archives or folders]
    codes = np.repeat(np.arange(len(names), dtype=np.int32), counts)
    if params.labels is not None:
        imagenet_lists.relabel(codes, names, frame["sample_id"], root / params.labels)
    frame["synset"] = _categories(codes, names)
    if params.val is not None and (root / params.val).is_file():
        val, held_out = params.val, imagenet_lists.listed(frame["sample_id"], root / params.val)
    else:
        val, held_out = "val", _smallest(frame["sample_id"], params)
    frame["split"] = pd.Categorical.from_codes(held_out.astype(np.int8), ["train", val])
    empty = counts.count(0)
    return Source(frame, notes={"synsets_without_images": empty} if empty else {})


def _synsets(root: Path) -> tuple[list[str], list[str]]:
    """The folders and the archives of synsets, in alphabetical order."""
    try:
        found = sorted(os.listdir(root))
    except OSError as error:
        raise GranularityError(f"{root}: cannot be read ({error.strerror})") from None
    for name in found:
        if re.match("n[0-9]", name) and not WNID.fullmatch(name.removesuffix(".tar")):
            raise GranularityError(f"{root / name}: is neither the folder nor the plain tar of a synset; see to it")
    found = [name for name in found if WNID.fullmatch(name.removesuffix(".tar"))]
    return [name for name in found if not name.endswith(".tar")], [name for name in found if name.endswith(".tar")]


def _archives(root: Path, archives: list[str], threads: int) -> tuple[pd.DataFrame, list[int]]:
    """The images in archives, and their number in each."""
    import numpy as np
    import pandas as pd

    ids, offsets, sizes = [], [], []
    members = tars.scan([root / name for name in archives], threads)
    for archive, found in zip(archives, members, strict=True):
        kept = [i for i, name in enumerate(found.names) if os.path.splitext(name)[1].lower() in ENDINGS]
        ids.append(_ids(archive.removesuffix(".tar"), [found.names[i] for i in kept]))
        offsets.append(np.asarray(found.offsets, dtype=np.int64)[kept])
        sizes.append(np.asarray(found.sizes, dtype=np.int64)[kept])
    counts = [len(part) for part in ids]
    columns = {
        "sample_id": pd.concat(ids, ignore_index=True),
        "file": pd.Categorical.from_codes(np.repeat(np.arange(len(archives)), counts), archives),
        "offset": np.concatenate(offsets),
        "bytes": np.concatenate(sizes),
    }
    return pd.DataFrame(columns, copy=False), counts


def _folders(root: Path, folders: list[str], threads: int) -> tuple[pd.DataFrame, list[int]]:
    """The images in folders, and their number in each."""
    import pandas as pd

    def listing(folder: str) -> tuple[pd.Series, pd.Series]:
        names = entries(root / folder)[1]
        return _ids(folder, names), pd.Series([f"{folder}/{name}" for name in names], dtype="str")

    nothing = pd.Series([], dtype="str")
    with ThreadPoolExecutor(threads) as pool:
        listed = [*track(pool.map(listing, folders), len(folders), "listing", "folders"), (nothing, nothing)]
    ids, files = zip(*listed, strict=True)
    columns = {"sample_id": pd.concat(ids, ignore_index=True), "file": pd.concat(files, ignore_index=True)}
    return pd.DataFrame(columns, copy=False), [len(part) for part in ids[:-1]]


def _ids(synset: str, names: list[str]) -> pd.Series:
    """The sample_ids as an Arrow column: as Python strings, those of 12.7 million images would take 1 GB."""
    import pandas as pd

    return pd.Series([f"{synset}/{stem(os.path.basename(name))}" for name in names], dtype="str")


def _categories(codes: np.ndarray, names: list[str]) -> pd.Categorical:
    """The classes that occur, in alphabetical order."""
    import numpy as np
    import pandas as pd

    used = np.flatnonzero(np.bincount(codes, minlength=len(names))).tolist()
    order = sorted(used, key=names.__getitem__)
    new = np.full(len(names), -1, dtype=np.int32)
    new[order] = np.arange(len(order))
    return pd.Categorical.from_codes(new[codes], [names[code] for code in order])


def _smallest(ids: pd.Series, params: Samples) -> np.ndarray:
    """Whether each image is among those with the smallest SHA-256 (of the sample_id in UTF-8): one bool per image."""
    import numpy as np

    count = int(params.validation if params.validation >= 1 else round(params.validation * len(ids)))
    if not 0 < count < len(ids):
        raise GranularityError(
            f"samples.validation = {params.validation}: holds out {count} of the {len(ids)} images of {params.root}; "
            "some must be held out, and some be left"
        )
    start = np.empty(len(ids), dtype=np.uint64)
    for first in range(0, len(ids), CHUNK):
        part = ids.iloc[first : first + CHUNK].tolist()
        start[first : first + len(part)] = [int.from_bytes(_digest(name)[:8]) for name in part]
    last = np.partition(start, count - 1)[count - 1]
    near = np.flatnonzero(start <= last)  # the first 8 bytes of two digests may be equal
    digests = [_digest(name) for name in ids.iloc[near]]
    chosen = np.zeros(len(ids), dtype=bool)
    chosen[near[sorted(range(len(near)), key=digests.__getitem__)[:count]]] = True
    return chosen


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
