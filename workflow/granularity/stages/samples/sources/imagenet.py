"""ImageNet-1k (ILSVRC 2012), Tiny ImageNet, and test sets of a shifted distribution.

root/train/n01440764/n01440764_10026.JPEG     one folder per synset (Tiny ImageNet: n01443537/images/...)
root/val/n01440764/...                        likewise, or
root/val/ILSVRC2012_val_00000001.JPEG         all in one folder, with samples.labels, or
root/val/images/val_0.JPEG                    with val/val_annotations.txt (Tiny ImageNet)

root is also Kaggle's ILSVRC/Data/CLS-LOC. `samples.labels`: see :mod:`.imagenet_labels`.
`samples.shifted`: see :mod:`.imagenet_shifted`. Rank: `synset`.

Source: readme.txt of ILSVRC2012_devkit_t12; torchvision/datasets/imagenet.py; the data page of Kaggle's
imagenet-object-localization-challenge; tiny-imagenet-200.zip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.stages.samples.formats import imagenet_shifted
from granularity.stages.samples.formats.imagenet_folders import WNID, Part, entries, frame, images
from granularity.stages.samples.formats.imagenet_labels import DEVKIT, META, synsets
from granularity.stages.samples.options import LABELS, Condition, Samples
from granularity.stages.samples.source import Source

IMAGES = 1_331_167
ANNOTATIONS = "val_annotations.txt"


OPTIONS = {
    "labels": LABELS,
    "shifted": (
        dict[str, Path],
        Field(
            {},
            description="For `imagenet`: test sets of a shifted distribution, by name (v2: /data/imagenetv2, ...). "
            "Each becomes a split of that name; list it in extra_splits.",
        ),
    ),
}


def check(samples: Samples, conditions: Sequence[Condition]) -> Iterator[str]:
    """Shifted test sets that nothing would be read of."""
    for name in samples.shifted:
        if name not in (samples.val, *samples.extra_splits):
            yield f"shifted: '{name}' is not in extra_splits, so nothing would be read of it"


def files(samples: Samples) -> Iterator[Path]:
    yield samples.root / "val" / ANNOTATIONS
    if samples.labels is not None:
        labels = samples.root / samples.labels
        yield from (labels, labels.parent / META, samples.root / DEVKIT / META)
    for folder in samples.shifted.values():
        yield from (folder / "mappings" / name for name in imagenet_shifted.MAPPINGS)


def folders(samples: Samples) -> Iterator[Path]:
    yield from (samples.root, *samples.shifted.values())


def read(params: Samples, threads: int = 1) -> Source:
    """The training images, and of the others those that are asked for.

    With shifted test sets, `distribution` is OOD for their images and ID for the others.

    Raises:
        GranularityError: a folder is missing, empty or of another layout; an image without label, or a label without
            image; or a class that has no training images.
    """
    import numpy as np
    import pandas as pd

    root, notes = params.root, {}
    asked = {params.val or "val", *params.extra_splits}
    parts = _by_class(root, "train", threads)
    known = sorted(part.synsets for part in parts)
    if "val" in asked and (root / "val").is_dir():
        parts += _validation(params, set(known), threads)
    clash = params.shifted.keys() & {"train", "val"}
    if clash:
        raise GranularityError(f"samples.shifted: {clash.pop()}: is the name of a split already; choose another")
    shifted = {name: folder for name, folder in params.shifted.items() if name in asked}
    for name, folder in shifted.items():
        more, note = imagenet_shifted.read(name, folder, root, known, threads)
        parts += more
        notes |= {name: note} if note else {}
    table = frame(parts)
    if shifted:
        codes = table["split"].isin(list(shifted)).to_numpy().astype(np.int8)
        table["distribution"] = pd.Categorical.from_codes(codes, ["ID", "OOD"])
    return Source(table, notes={"shifted": notes} if notes else {})


def _by_class(root: Path, split: str, threads: int) -> list[Part]:
    """The images of a split in folders of their class."""
    found = entries(root / split)[0]
    if not found:
        raise GranularityError(f"{root / split}: holds no folders called by synsets, such as n01440764")
    for name in found:
        if not WNID.fullmatch(name):
            raise GranularityError(f"{root / split / name}: is no synset (n and eight digits); move it elsewhere")
    with ThreadPoolExecutor(threads) as pool:
        listed = list(pool.map(_class, (root / split / name for name in found)))
    return [
        Part(split, split, [f"{name}/{file}" for file in files], name)
        for name, files in zip(found, listed, strict=True)
    ]


def _class(folder: Path) -> list[str]:
    if (folder / "images").is_dir():  # Tiny ImageNet
        return [f"images/{file}" for file in images(folder / "images")]
    return images(folder)


def _validation(params: Samples, known: set[str], threads: int) -> list[Part]:
    root, folder = params.root, params.root / "val"
    folders, loose = entries(folder)
    tiny = not loose and folders == ["images"] and (folder / ANNOTATIONS).is_file()
    if folders and not tiny:
        if loose:
            raise GranularityError(f"{folder}: holds both folders and images, such as {folders[0]} and {loose[0]}")
        parts = _by_class(root, "val", threads)
        place = {part.synsets: str(folder / part.synsets) for part in parts}
    else:
        if tiny:
            labels, loose = folder / ANNOTATIONS, images(folder / "images")
        elif not loose:
            raise GranularityError(f"{folder}: holds no images")
        elif params.labels is None:
            raise GranularityError(f"samples.labels: {folder} has no folders of classes; name the file of its labels")
        else:
            labels = root / params.labels
        classes = synsets(loose, labels, root)
        parts = [Part("val", "val", [f"images/{file}" if tiny else file for file in loose], classes)]
        place = dict.fromkeys(classes, str(labels))
    unknown = sorted(place.keys() - known)
    if unknown:
        raise GranularityError(
            f"{place[unknown[0]]}: unknown class '{unknown[0]}': {root / 'train'} has no folder of that name"
        )
    return parts
