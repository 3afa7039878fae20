"""Your own images: a folder level a rank, coarse to fine, then the files.

root/animal/dog/1.jpg              ranks: [kind, species]
root/train/dog/1.jpg, root/val/... ranks: [species]; the publisher's own split is kept
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from granularity.base.errors import GranularityError
from granularity.config.options import Samples
from granularity.stages.samples.source import Source

IMAGES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def read(params: Samples, threads: int = 1) -> Source:
    """All images, with the split where `train` and `val` folders give it.

    Raises:
        GranularityError: no images, an image at another depth than the ranks say, or a name that is not UTF-8.
    """
    has_splits = os.path.isdir(params.root / "train") and os.path.isdir(params.root / "val")
    depth = len(params.ranks) + has_splits
    rows = []
    for file in _images_below(params.root):
        parts = file.relative_to(params.root).parts
        if len(parts) - 1 != depth:
            raise GranularityError(
                f"{file}: lies {len(parts) - 1} folders below samples.root, but samples.ranks {params.ranks}"
                f"{' and the split' if has_splits else ''} ask for {depth}"
            )
        if any("\ud800" <= character <= "\udfff" for character in str(file)):  # Python's stand-ins for such bytes
            raise GranularityError(f"{str(file)!r}: its name is not UTF-8; rename it")
        if has_splits and parts[0] not in ("train", "val"):
            raise GranularityError(f"{file}: is in neither 'train' nor 'val' of {params.root}")
        rows.append(
            {
                "file": "/".join(parts),
                "split": parts[0] if has_splits else None,
                "names": parts[has_splits:-1],
            }
        )
    if not rows:
        raise GranularityError(f"{params.root}: holds no images ({', '.join(sorted(IMAGES))})")
    frame = pd.DataFrame(rows)
    frame.insert(0, "sample_id", frame["file"])
    for level, rank in enumerate(params.ranks):
        paths = frame["names"].map(lambda names, level=level: names[: level + 1])
        # "other" below two parents is two classes, and only then needs its parents in its name
        parents_of_name = paths.groupby(paths.str[-1]).nunique()
        frame[rank] = [path[-1] if parents_of_name[path[-1]] == 1 else "/".join(path) for path in paths]
    frame = frame.drop(columns="names")
    return Source(frame if has_splits else frame.drop(columns="split"))


def _images_below(root: Path) -> list[Path]:
    def unreadable(error: OSError) -> None:
        raise GranularityError(f"{error.filename}: cannot be read ({error.strerror})") from None

    found = []
    for folder, folders, files in os.walk(root, onerror=unreadable, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]  # thumbnails, checkpoints, trash
        named = [Path(folder, name) for name in files if not name.startswith(".")]
        found += [file for file in named if file.suffix.lower() in IMAGES]
    return sorted(found)
