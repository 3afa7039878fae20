"""Your own images, one folder level per rank; and `imagenet21k`, read from its archives (docs/datasets.md)."""

from __future__ import annotations

import mimetypes
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.data.decoding import ENDINGS, is_image
from granularity.stages.samples.options import Condition, Samples
from granularity.stages.samples.source import UNLABELLED, VALIDATION, Source, named, wanted

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from granularity.data.tars import Members

EXPECTED_IMAGES = {"imagenet21k": 14_197_122}
SPLITS = ("train", *VALIDATION)
TYPES = mimetypes.MimeTypes()  # not the machine's own types, which differ
LIKE_SPLITS = {*SPLITS, "training", "dev", "testing", "eval", "evaluation"}


class Folder(NamedTuple):
    """The images of one folder, or of a folder in an archive; possibly none."""

    parts: tuple[str, ...]  # the folders from the root down; an archive's name without `.tar`
    names: pd.Series  # in alphabetical order; Arrow text, because 12.7 million Python strings take 1 GB
    others: Counter[str]  # counts of other files, by suffix
    archive: str | None = None  # its path below the root ...
    places: np.ndarray | None = None  # ... and the offset and the size of each image, int64 [images, 2]


def check(samples: Samples, conditions: Sequence[Condition]) -> Iterator[str]:
    """Complain about a validation split of the preset without splits."""
    if samples.source == "imagenet21k" and samples.val is not None:
        yield "val: ImageNet-21k has no validation split; for a list of images write a table (source: table), else null"


def read(params: Samples, threads: int = 1) -> Source:
    """Return all images of the requested splits; `sample_id` is the path. GranularityError: another layout."""
    import numpy as np
    import pandas as pd

    from granularity.stages.samples.ranks import repeated

    ranks = _levels(params)
    everything = below(params.root, archives=params.source == "imagenet21k", threads=threads)
    full = [folder for folder in everything if len(folder.names)]
    if not full:
        contents = counted(sum((folder.others for folder in everything), Counter()))
        raise GranularityError(
            f"{params.root}: contains no images ({', '.join(sorted(ENDINGS))}){contents and f', but {contents}'}"
        )
    splits = _splits(sorted({folder.parts[0] for folder in full if folder.parts}), params)
    top, flat = splits, {folder.parts for folder in full if folder.parts[:1] == (UNLABELLED,)} == {(UNLABELLED,)}
    if flat and UNLABELLED in splits and UNLABELLED not in named(params).values():
        say(f"{params.root / UNLABELLED}: left out: has no folders of classes, so its images have no labels")
        splits = [name for name in splits if name != UNLABELLED]
    unread = {*top} - wanted(splits, params)
    everything, full = (
        [folder for folder in folders if not (folder.parts and folder.parts[0] in unread)]
        for folders in (everything, full)
    )
    notes = left_out(everything, params.root)
    depth = len(ranks) + bool(splits)
    for folder in full:
        if len(folder.parts) != depth:
            hint = "set samples.root one level higher, or take ranks without a folder from samples.taxonomy"
            if len(folder.parts) - 1 == depth and not splits:
                hint = f"if '{folder.parts[0]}' is a split, name it in samples.train, val or extra_splits; "
                hint += f"otherwise set samples.root to {params.root / folder.parts[0]}"
            deep = f"{len(folder.parts)} folder{'s' * (len(folder.parts) != 1)}"
            problem = f"is {deep} below samples.root, but the ranks {ranks}"
            problem += f"{' and the split' * bool(splits)} ask for {depth}; {hint}"
            raise GranularityError(f"{params.root.joinpath(*folder.parts, folder.names[0])}: {problem}")
    counts = [len(folder.names) for folder in full]
    ids = ["".join(f"{part}/" for part in folder.parts) + folder.names for folder in full]
    frame = pd.DataFrame({"sample_id": pd.concat(ids, ignore_index=True)})
    frame["file"] = frame["sample_id"]
    if packed := [folder.archive for folder in full if folder.archive]:
        if len(packed) < len(full):
            raise GranularityError(f"{params.root}: contains both images in folders and archives; keep one of the two")
        frame["file"] = repeated(packed, counts)
        frame["offset"], frame["bytes"] = np.concatenate([folder.places for folder in full]).T
    if splits:
        frame["split"] = repeated([folder.parts[0] for folder in full], counts)
    for level, rank in enumerate(ranks, 1):
        paths = [folder.parts[bool(splits) :][:level] for folder in full]
        # "other" below two parents is two classes; only then a name includes its parents
        parents = Counter(path[-1] for path in set(paths))
        frame[rank] = repeated([path[-1] if parents[path[-1]] == 1 else "/".join(path) for path in paths], counts)
    return Source(frame, notes=notes)


def left_out(folders: list[Folder], root: Path) -> dict[str, Any]:
    """Return and log what a sample table of these folders omits; GranularityError: all files of a folder."""
    suffixes, notes = sum((folder.others for folder in folders), Counter()), {}
    if suffixes:
        notes["other_files"] = dict(sorted(suffixes.items()))
        say(f"{root}: left out {counted(suffixes)}: no images")
    if empty := without_images(folders):
        for parts, contents in empty.items():
            if contents:
                problem = f"has no readable image, but {counted(contents)}; convert them to JPEG or PNG, or move it"
                raise GranularityError(f"{root.joinpath(*parts)}: {problem} out of samples.root")
        notes["empty_folders"] = ["/".join(parts) for parts in empty]
        say(f"{root}: {len(empty)} folders are empty: {_listed(notes['empty_folders'])}")
    return notes


def without_images(folders: list[Folder]) -> dict[tuple[str, ...], Counter[str]]:
    """Return the topmost folders without an image at any depth, with the suffixes of the files below each."""
    full = {folder.parts[:depth] for folder in folders if len(folder.names) for depth in range(len(folder.parts) + 1)}
    empty: dict[tuple[str, ...], Counter[str]] = {}
    for folder in folders:
        top = next((folder.parts[:n] for n in range(len(folder.parts) + 1) if folder.parts[:n] not in full), None)
        if top is not None:
            empty[top] = empty.get(top, Counter()) + folder.others
    return empty


def counted(others: Counter[str]) -> str:
    """Describe counts of files by suffix."""
    return ", ".join(f"{count:,} {ending or 'without an ending'}" for ending, count in sorted(others.items()))


def _levels(params: Samples) -> list[str]:
    """Return the ranks that are folder levels: those that nothing else adds."""
    from granularity.stages.samples.ranks import LIVING, SYNSET, read_taxonomy

    key, *added = [SYNSET] if params.taxonomy is None else read_taxonomy(params.taxonomy).columns
    added += [LIVING] * (params.wordnet is not None)
    return [rank for rank in params.ranks if rank not in added] or [key]


def _splits(top: list[str], params: Samples) -> list[str]:
    """Return the top folders if they are splits, otherwise none; GranularityError if that is ambiguous."""
    told = named(params)
    for key, name in told.items():
        if name not in top:
            raise GranularityError(f"samples.{key}: {params.root} has no folder '{name}', but {_listed(top) or 'none'}")
    splits = [name for name in top if name in {*SPLITS, *told.values()}]
    if told or splits == top or ("train" in splits and len(splits) > 1):
        if folder := next((name for name in top if name not in splits), None):
            problem = f"is beside {_listed(splits)}, but is not a split of samples.train, val or extra_splits"
            raise GranularityError(f"{params.root / folder}: {problem}; name it there, or move it elsewhere")
        return splits
    alike = [name for name in top if LIKE_SPLITS.intersection(re.split("[^a-z]+", name.lower()))]
    if alike == top or len([name for name in alike if name.lower() in LIKE_SPLITS]) > 1:
        problem = f"its folders {_listed(alike)} look like splits; name them in samples.train, val or extra_splits"
        raise GranularityError(f"{params.root}: {problem}, or, if they are classes, rename them")
    return []


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)


def below(root: Path, archives: bool = False, threads: int = 1) -> list[Folder]:
    """Return all folders below a root, in alphabetical order; hidden ones are left out, links are followed.

    The suffix tells whether a file is an image; if it is unknown, the first bytes do. But beside `1.jpg`, files such as
    `1.jpg_original` and `1.NEF` are the same photograph again. With `archives`, a `.tar` counts as a folder. Raises
    GranularityError: a folder cannot be read, or is a link to one that contains it; or see :func:`tars.scan`.
    """

    import pandas as pd

    from granularity.data import tars

    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    listing, packed = [], []
    above = {str(root): ()}  # the folders that contain each one, by device and inode
    for at, folders, files in os.walk(root, onerror=unreadable, followlinks=True):
        status = os.stat(at)
        identity = status.st_dev, status.st_ino
        if identity in above[at]:
            raise GranularityError(f"{at}: is a link to a folder above itself; remove it")
        within = (*above.pop(at), identity)
        folders[:] = [name for name in folders if not name.startswith(".")]  # thumbnails, checkpoints, trash
        above |= {os.path.join(at, name): within for name in folders}
        archived = [Path(at, name) for name in files if archives and name.endswith(".tar")]
        images, others = _sorted([name for name in files if not (archived and name.endswith(".tar"))], Path(at))
        if not archived or images:
            listing.append(Folder(Path(at).relative_to(root).parts, pd.Series(images, dtype="str"), others))
        packed += archived
    packed.sort()
    for archive, members in zip(packed, tars.scan(packed, threads) if packed else (), strict=True):
        listing += _in_archive(archive.relative_to(root), members)
    return sorted(listing, key=lambda folder: folder.parts)


def _in_archive(archive: Path, members: Members) -> Iterator[Folder]:
    import numpy as np
    import pandas as pd

    top = archive.with_suffix("").parts
    folders: dict[tuple[str, ...], dict[str, tuple[int, int]]] = {}
    for name, *place in zip(*members, strict=True):
        path = PurePosixPath(name)
        folders.setdefault(path.parts[:-1], {})[path.name] = tuple(place)
    for parts, files in (folders or {(): {}}).items():
        images, others = _sorted([*files])
        places = np.array([files[name] for name in images], dtype=np.int64).reshape(-1, 2)
        yield Folder((*top, *parts), pd.Series(images, dtype="str"), others, archive.as_posix(), places)


def _sorted(files: list[str], folder: Path | None = None) -> tuple[list[str], Counter[str]]:
    """Return the images among some files, in alphabetical order, and the suffixes of the other visible files.

    With `folder`, files with an unknown suffix are opened, unless an image has the same name with a known one.
    """
    images, others = [], Counter()
    parts = [(name, *os.path.splitext(name)) for name in sorted(files) if not name.startswith(".")]
    parts = [(name, stem, ending.lower()) for name, stem, ending in parts]
    known = {one for name, stem, ending in parts if ending in ENDINGS for one in (name, stem)}
    for name, stem, ending in parts:
        silent = folder is not None and (TYPES.guess_type(name)[0] or "image/").startswith("image/")
        if ending in ENDINGS or (silent and not (ending and stem in known) and is_image(folder / name)):
            images.append(name)
        else:
            others[ending] += 1
    return images, others
