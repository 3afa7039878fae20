"""Your own images, one folder level per rank; `imagenet21k`, of whose archives images are read (docs/datasets.md)."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from granularity.base.errors import GranularityError
from granularity.data.decoding import ENDINGS
from granularity.stages.samples.options import Condition, Samples
from granularity.stages.samples.source import VALIDATION, Source, named, wanted

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from granularity.data.tars import Members

IMAGES = {"imagenet21k": 14_197_122}
SPLITS = ("train", *VALIDATION)
LIKE_SPLITS = {*SPLITS, "training", "dev", "testing", "eval", "evaluation"}


class Folder(NamedTuple):
    """The images of one folder, or of one in an archive."""

    parts: tuple[str, ...]  # the folders from the root down; an archive's name without `.tar`
    names: pd.Series  # in alphabetical order; text of Arrow's, as those of 12.7 million images are 1 GB of Python
    archive: str | None = None  # its path below the root ...
    places: np.ndarray | None = None  # ... and the offset and the size of each image, int64 [images, 2]


def check(samples: Samples, conditions: Sequence[Condition]) -> Iterator[str]:
    """The preset that has no splits."""
    if samples.source == "imagenet21k" and samples.val is not None:
        yield "val: ImageNet-21k has no validation split; for a list of images write a table (source: table), else null"


def read(params: Samples, threads: int = 1) -> Source:
    """All images of the splits that are asked for; `sample_id` is the path. GranularityError: no such layout."""
    import numpy as np
    import pandas as pd

    from granularity.stages.samples.ranks import repeated

    ranks = _levels(params)
    found = below(params.root, archives=params.source == "imagenet21k", threads=threads)
    if not found:
        raise GranularityError(f"{params.root}: holds no images ({', '.join(sorted(ENDINGS))})")
    splits = _splits(sorted({folder.parts[0] for folder in found if folder.parts}), params)
    asked = wanted(splits, params)
    found = [folder for folder in found if not (splits and folder.parts and folder.parts[0] in {*splits} - asked)]
    depth = len(ranks) + bool(splits)
    for folder in found:
        if len(folder.parts) != depth:
            hint = "a rank that has no folder comes from samples.taxonomy"
            if len(folder.parts) - 1 == depth and not splits:
                hint = "if the first is a split, name it in samples.train, val or extra_splits"
            what = f"lies {len(folder.parts)} folders below samples.root, but the ranks {ranks}"
            what += f"{' and the split' * bool(splits)} ask for {depth}; {hint}"
            raise GranularityError(f"{params.root.joinpath(*folder.parts, folder.names[0])}: {what}")
    counts = [len(folder.names) for folder in found]
    ids = ["".join(f"{part}/" for part in folder.parts) + folder.names for folder in found]
    frame = pd.DataFrame({"sample_id": pd.concat(ids, ignore_index=True)})
    frame["file"] = frame["sample_id"]
    if packed := [folder.archive for folder in found if folder.archive]:
        if len(packed) < len(found):
            raise GranularityError(f"{params.root}: holds both images in folders and archives; keep one of the two")
        frame["file"] = repeated(packed, counts)
        frame["offset"], frame["bytes"] = np.concatenate([folder.places for folder in found]).T
    if splits:
        frame["split"] = repeated([folder.parts[0] for folder in found], counts)
    for level, rank in enumerate(ranks, 1):
        paths = [folder.parts[bool(splits) :][:level] for folder in found]
        # "other" below two parents is two classes, and only then needs its parents in its name
        parents = Counter(path[-1] for path in set(paths))
        frame[rank] = repeated([path[-1] if parents[path[-1]] == 1 else "/".join(path) for path in paths], counts)
    return Source(frame)


def _levels(params: Samples) -> list[str]:
    """The ranks that are folder levels: those that nothing else adds."""
    from granularity.stages.samples.ranks import LIVING, SYNSET, read_taxonomy

    key, *added = [SYNSET] if params.taxonomy is None else read_taxonomy(params.taxonomy).columns
    added += [LIVING] * (params.wordnet is not None)
    return [rank for rank in params.ranks if rank not in added] or [key]


def _splits(top: list[str], params: Samples) -> list[str]:
    """Those of the folders at the top that are splits: all of them, or none; an error where one cannot tell."""
    told = named(params)
    for key, name in told.items():
        if name not in top:
            raise GranularityError(f"samples.{key}: {params.root} has no folder '{name}', but {_listed(top) or 'none'}")
    known = [name for name in top if name in {*SPLITS, *told.values()}]
    if told or known == top or ("train" in known and len(known) > 1):
        if other := next((name for name in top if name not in known), None):
            what = f"lies beside {_listed(known)}, but is none of the splits that samples.train, val, extra_splits name"
            raise GranularityError(f"{params.root / other}: {what}; name it there, or move it elsewhere")
        return known
    alike = [name for name in top if LIKE_SPLITS.intersection(re.split("[^a-z]+", name.lower()))]
    if alike == top or len([name for name in alike if name.lower() in LIKE_SPLITS]) > 1:
        what = f"its folders {_listed(alike)} look like splits; name them in samples.train, val or extra_splits"
        raise GranularityError(f"{params.root}: {what}, or, if they are classes, call them otherwise")
    return []


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)


def below(root: Path, archives: bool = False, threads: int = 1) -> list[Folder]:
    """All folders below a root that hold images, in alphabetical order; what is hidden is left out, links are followed.

    With `archives`, a `.tar` stands for a folder. Raises GranularityError: a folder cannot be read, or is a link to one
    that it lies in; or see :func:`tars.scan`.
    """

    import pandas as pd

    from granularity.data import tars

    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    found, packed = [], []
    above = {str(root): ()}  # the folders that each one lies in, by device and inode
    for at, folders, files in os.walk(root, onerror=unreadable, followlinks=True):
        there = os.stat(at)
        here = there.st_dev, there.st_ino
        if here in above[at]:
            raise GranularityError(f"{at}: is a link to a folder that it lies in, which never ends; remove it")
        within = (*above.pop(at), here)
        folders[:] = [name for name in folders if not name.startswith(".")]  # thumbnails, checkpoints, trash
        above |= {os.path.join(at, name): within for name in folders}
        images = sorted(filter(_is_image, files))
        if images:
            found.append(Folder(Path(at).relative_to(root).parts, pd.Series(images, dtype="str")))
        packed += [Path(at, name) for name in files if archives and name.endswith(".tar")]
    packed.sort()
    for archive, members in zip(packed, tars.scan(packed, threads) if packed else (), strict=True):
        found += _in_archive(archive.relative_to(root), members)
    return sorted(found, key=lambda folder: folder.parts)


def _in_archive(archive: Path, members: Members) -> Iterator[Folder]:
    import numpy as np
    import pandas as pd

    folders: dict[tuple[str, ...], list[tuple[str, int, int]]] = {}
    for name, *place in zip(*members, strict=True):
        path = PurePosixPath(name)
        if _is_image(path.name):
            folders.setdefault(path.parts[:-1], []).append((path.name, *place))
    for parts, rows in folders.items():
        names, *places = zip(*sorted(rows), strict=True)
        places = np.array(places, dtype=np.int64).T
        yield Folder(
            (*archive.with_suffix("").parts, *parts), pd.Series(names, dtype="str"), archive.as_posix(), places
        )


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in ENDINGS
