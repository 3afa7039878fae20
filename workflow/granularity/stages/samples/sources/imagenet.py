"""ImageNet-1k (ILSVRC 2012), Tiny ImageNet, and test sets of a shifted distribution; layouts: docs/datasets.md.

ImageNetV2's folders, 0 to 999, are positions of synsets in alphabetical order. ObjectNet: images/OBJECT/*.png, and
mappings/ with folder_to_objectnet_label.json (folder -> label), objectnet_to_imagenet_1k.json (label -> names of
ImageNet classes, joined by `; `), imagenet_to_label_2012_v2 (these names, one per line) and
pytorch_to_imagenet_2012_id.json (position in alphabetical order -> line, from 0).

Source: readme.txt of ILSVRC2012_devkit_t12; torchvision/datasets/imagenet.py; tiny-imagenet-200.zip;
github.com/modestyachts/ImageNetV2; src/datasets/objectnet.py of github.com/mlfoundations/wise-ft.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular, read_text
from granularity.base.strict_json import read_json
from granularity.data.decoding import ENDINGS
from granularity.data.wordnet import SEPARATOR
from granularity.stages.samples.options import LABELS, Condition, Samples
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import pandas as pd

EXPECTED_IMAGES = 1_331_167
SHIFTED = (
    "For `imagenet`: test sets with a shifted distribution, by name (v2: /data/imagenetv2, ...). Each becomes a split "
    "of that name; list it in extra_splits."
)
OPTIONS = {"labels": LABELS, "shifted": (dict[str, Path], Field({}, description=SHIFTED))}
ANNOTATIONS = "val_annotations.txt"
DEVKIT, META = Path("ILSVRC2012_devkit_t12", "data"), "meta.mat"
HEADER = "ImageId,PredictionString"
CLASSES = 1000  # larger ids are inner nodes of the hierarchy
FORMS = {  # kind of the first line -> form of all lines, with groups for the image (if named) and its class
    "number": re.compile(r"()([0-9]{1,9})"),
    "synset": re.compile(r"()(n[0-9]{8})"),
    "pair": re.compile(r"([^\s,]+)[\s,]+(n[0-9]{8})(?:\s.*)?"),
}
MAPPINGS = (
    "folder_to_objectnet_label.json",
    "objectnet_to_imagenet_1k.json",
    "pytorch_to_imagenet_2012_id.json",
    "imagenet_to_label_2012_v2",
)


def check(samples: Samples, conditions: Sequence[Condition]) -> Iterator[str]:
    """Complain about shifted test sets that would not be read."""
    for name in samples.shifted:
        if name not in (samples.val, *samples.extra_splits):
            yield f"shifted: '{name}' is not in extra_splits, so it would not be read; add it there"
        elif name in ("train", "val"):
            yield f"shifted: '{name}' is already the name of a split; choose another"


def files(samples: Samples) -> Iterator[Path]:
    yield samples.root / "val" / ANNOTATIONS
    if samples.labels is not None:
        labels = samples.root / samples.labels
        yield from (labels, labels.parent / META, samples.root / DEVKIT / META)
    for folder in samples.shifted.values():
        yield from (folder / "mappings" / name for name in MAPPINGS)


def folders(samples: Samples) -> Iterator[Path]:
    yield from (samples.root, *samples.shifted.values())


def read(params: Samples, threads: int = 1) -> Source:
    """Return the training images and the other splits asked for; with shifted sets, `distribution` is ID or OOD."""
    import numpy as np
    import pandas as pd

    root, notes = params.root, {}
    asked = {params.val or "val", *params.extra_splits}
    parts = [_part("train", root / "train", root)]
    synsets = sorted(set(parts[0]["synset"]))
    for folder in synsets:
        if not FORMS["synset"].fullmatch(folder):
            raise GranularityError(f"{root / 'train' / folder}: must be named by a synset, such as n01440764")
    if "val" in asked and (root / "val").is_dir():
        parts.append(_validation(params))
    for name in (name for name in params.shifted if name in asked):
        base, of_folder = _shifted(name, params.shifted[name], synsets)
        part = _part(name, base, root, list(of_folder))
        part["synset"] = part["synset"].map(of_folder)
        without = part["synset"] == ""
        if without.any():
            count = sum(not synset for synset in of_folder.values())
            why = "in no class of ImageNet"
            notes[name] = {"left_out": {"classes": count, "images": int(without.sum()), "why": why}}
        parts.append(part[~without])
    table = pd.concat(parts, ignore_index=True)
    for synset, file in table.drop_duplicates("synset")[["synset", "file"]].itertuples(index=False):
        if not set(synset.split(SEPARATOR)) <= set(synsets):
            unknown = f"unknown class '{synset}': {root / 'train'} has no folder of that name"
            raise GranularityError(f"{root / file}: {unknown}; layouts of shifted sets are in docs/datasets.md")
    for column in ("split", "synset"):
        table[column] = table[column].astype("category")
    if asked & params.shifted.keys():
        codes = table["split"].isin(list(params.shifted)).to_numpy().astype(np.int8)
        table["distribution"] = pd.Categorical.from_codes(codes, ["ID", "OOD"])
    return Source(table, notes={"shifted": notes} if notes else {})


def _part(split: str, base: Path, root: Path, order: list[str] | None = None) -> pd.DataFrame:
    """Return `sample_id` (split/file), `split`, `file` and `synset` (the folder) of images below base, sorted."""
    import pandas as pd

    from granularity.stages.samples.sources.folder import below, counted, without_images

    packed = [entry.name for entry in base.glob("*.tar*")] if base.is_dir() else []
    if packed:
        raise GranularityError(f"{base / packed[0]}: is still packed; unpack it, or move it elsewhere")
    everything = below(base)
    for parts, contents in without_images(everything).items():
        problem = f"contains no images{contents and f', but {counted(contents)}'}; was it unpacked completely?"
        raise GranularityError(f"{base.joinpath(*parts)}: {problem}")
    full = [entry for entry in everything if len(entry.names)]
    if order is not None:
        full = sorted((entry for entry in full if entry.parts), key=lambda entry: order.index(entry.parts[0]))
    # resolved, because `..` would otherwise follow a symbolic link
    where = split if base == root / split else Path(os.path.relpath(base.resolve(), root.resolve())).as_posix()
    files = pd.concat(["".join(f"{part}/" for part in entry.parts) + entry.names for entry in full], ignore_index=True)
    synsets = [entry.parts[0] if entry.parts else "" for entry in full for _ in entry.names]
    table = pd.DataFrame({"sample_id": f"{split}/" + files, "split": split, "file": f"{where}/" + files})
    return table.assign(synset=pd.Series(synsets, dtype="str"))


def _validation(params: Samples) -> pd.DataFrame:
    root, folder = params.root, params.root / "val"
    part = _part("val", folder, root)
    tiny = set(part["synset"]) == {"images"}
    if not tiny and part["synset"].iloc[-1]:
        return part
    if not tiny and params.labels is None:
        raise GranularityError(f"samples.labels: {folder} has no folders of classes; set it to the file of labels")
    labels = folder / ANNOTATIONS if tiny else root / params.labels
    return part.assign(synset=_synsets([Path(file).name for file in part["file"]], labels, root))


def _synsets(images: list[str], file: Path, root: Path) -> list[str]:
    """Return the synset of each image (a file name), in order; the first line shows the format (docs/datasets.md).

    `490` is an ILSVRC2012_ID, explained by meta.mat: beside the file, or in ILSVRC2012_devkit_t12/data.
    """
    lines = [(number, line.strip()) for number, line in enumerate(read_text(file).splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and (number, line) != (1, HEADER)]
    first = lines[0][1] if lines else ""
    form = next((form for form in ("number", "synset") if FORMS[form].fullmatch(first)), "pair")
    matches = [FORMS[form].fullmatch(line) for _, line in lines]
    wnids = _wnids(file, root) if form == "number" else None
    for (number, line), match in zip(lines, matches, strict=True):
        if match is None or (wnids and int(match[2]) not in wnids):
            raise GranularityError(
                f"{file}: line {number}: '{line[:60]}' is not a label, because the first line is a {form}"
            )
    names = [_stem(image) for image in images] if form == "pair" else range(len(images))
    labels = {_stem(match[1]) if form == "pair" else i: match[2] for i, match in enumerate(matches)}
    if len(matches) != len(names) or labels.keys() != {*names}:
        odd = min(map(str, {*names} ^ labels.keys()), default="")
        which = f", '{odd}' being in only one of the two" if form == "pair" and odd else ""
        raise GranularityError(f"{file}: has {len(matches)} labels, but there are {len(names)} images{which}")
    return [wnids[int(labels[name])] if wnids else labels[name] for name in names]


def _stem(name: str) -> str:
    return Path(name).stem if Path(name).suffix.lower() in ENDINGS else name


def _wnids(file: Path, root: Path) -> dict[int, str]:
    """Return ILSVRC2012_ID -> WNID of the classes, from the development kit's meta.mat (readme.txt, "synsets")."""
    from scipy.io import loadmat

    places = [file.parent / META, root / DEVKIT / META]
    meta = next((place for place in places if place.is_file()), None)
    if meta is None:
        raise GranularityError(
            f"{file}: contains numbers, which meta.mat explains; put meta.mat beside it, or at {places[1]}"
        )
    data = io.BytesIO(read_regular(meta, 4 << 20))
    try:
        table = loadmat(data, squeeze_me=True, variable_names=["synsets"])["synsets"]
        ids, wnids = table["ILSVRC2012_ID"].ravel().tolist(), table["WNID"].ravel().tolist()
        return {int(key): str(name) for key, name in zip(ids, wnids, strict=True) if 1 <= int(key) <= CLASSES}
    except Exception as error:  # SciPy may raise any error (struct, zlib, index, key, memory, ...)
        reason = " ".join(str(error).split())[:200]
        raise GranularityError(
            f"{meta}: is not an intact meta.mat of ILSVRC 2012 ({reason}); download it again"
        ) from None


def _shifted(name: str, folder: Path, known: list[str]) -> tuple[Path, dict[str, str]]:
    """Return the folder that has a folder of images per class, and each class's synsets; `known` is sorted."""
    objectnet = (folder / "mappings").is_dir()
    images = folder / "images" if objectnet else folder
    if not images.is_dir():
        raise GranularityError(f"samples.shifted: {name}: {images}: there is no such folder")
    names = sorted(entry.name for entry in images.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    numbered = bool(names) and all(entry.isdecimal() for entry in names)
    if (objectnet or numbered) and len(known) != CLASSES:
        problem = f"names classes by their place among {CLASSES}, but there are training images of {len(known)}"
        raise GranularityError(f"samples.shifted: {name}: {folder}: {problem}")
    if objectnet:
        return images, _objectnet(folder / "mappings", names, known)
    if numbered:
        return images, {entry: known[int(entry)] if int(entry) < CLASSES else entry for entry in sorted(names, key=int)}
    return images, {entry: entry for entry in names}


def _objectnet(mappings: Path, folders: list[str], known: list[str]) -> dict[str, str]:
    """Return folder -> its synsets, joined; "" for folders without a class in ImageNet."""
    files = [mappings / name for name in MAPPINGS]
    label_of_folder, names_of_label, line_of_place = (read_json(file) for file in files[:3])
    name_of_line = [line.strip() for line in read_text(files[3]).splitlines()]
    try:
        synset_of = {name_of_line[line]: known[int(place)] for place, line in line_of_place.items()}
        names = {folder: names_of_label.get(label_of_folder[folder], "") for folder in folders}
        synsets = {
            folder: sorted({synset_of[name] for name in text.split("; ") if name}) for folder, text in names.items()
        }
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise GranularityError(
            f"{mappings}: are not the mappings of ObjectNet 1.0 ({error}); download them again"
        ) from None
    return {folder: SEPARATOR.join(wnids) for folder, wnids in synsets.items()}
