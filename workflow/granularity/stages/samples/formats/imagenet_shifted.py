"""Test sets of a shifted distribution for classifiers of ImageNet, each in its publisher's layout.

* ImageNet-R, ImageNet-A, ImageNet-Sketch: one folder per synset (and a README).
* ImageNetV2: folders 0 to 999, the place of the synset in the alphabetical order of all 1000. Source: issue 6 of
  github.com/modestyachts/ImageNetV2.
* ObjectNet: images/OBJECT/*.png, and mappings/ with folder_to_objectnet_label.json (folder -> label),
  objectnet_to_imagenet_1k.json (label -> names of ImageNet classes, joined by `; `), imagenet_to_label_2012_v2 (these
  names, one per line) and pytorch_to_imagenet_2012_id.json (place in alphabetical order -> line, from 0). Objects that
  are in no class of ImageNet are left out; images of an object that is in several have them all. Each image has a red
  border, 2 pixels wide, that its publisher asks to crop: it is not cropped here. Source: README of ObjectNet 1.0, and
  src/datasets/objectnet.py of github.com/mlfoundations/wise-ft.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.regular import read_text
from granularity.base.strict_json import read_json
from granularity.data.wordnet import SEPARATOR
from granularity.stages.samples.formats.imagenet_folders import WNID, Part, entries, images

CLASSES = 1000
MAPPINGS = (
    "folder_to_objectnet_label.json",
    "objectnet_to_imagenet_1k.json",
    "pytorch_to_imagenet_2012_id.json",
    "imagenet_to_label_2012_v2",
)


def read(name: str, folder: Path, root: Path, known: list[str], threads: int = 1) -> tuple[list[Part], dict]:
    """The images of a shifted test set, and what is to be noted of it.

    Args:
        name: the name of the split.
        folder: the test set.
        root: the folder that files are relative to.
        known: the synsets of the training images, in alphabetical order.
        threads: folders listed at a time.

    Raises:
        GranularityError: the folder is of no layout known here, or has classes that are not in training.
    """
    notes = {}
    if (folder / "mappings").is_dir():
        folder, mappings = folder / "images", folder / "mappings"
        found = entries(folder)[0]
        classes = _objectnet(mappings, found, _all(known, name, folder))
    else:
        found = entries(folder)[0]
        numbers = {str(number) for number in range(CLASSES)}
        if found and numbers.issuperset(found):
            every = _all(known, name, folder)
            classes = {number: every[int(number)] for number in sorted(found, key=int)}
        elif found and all(WNID.fullmatch(one) for one in found):
            classes = {one: one for one in found}
        else:
            raise GranularityError(
                f"samples.shifted: {name}: {folder}: is of no layout known here: only folders called by synsets "
                "(ImageNet-R, -A, -Sketch), only folders 0 to 999 (ImageNetV2), or images/ and mappings/ (ObjectNet)"
            )
    for one, synset in classes.items():
        if synset and not set(synset.split(SEPARATOR)) <= set(known):
            raise GranularityError(f"{folder / one}: unknown class '{synset}': the training images have none of it")
    with ThreadPoolExecutor(threads) as pool:
        listed = list(pool.map(images, (folder / one for one in classes)))
    # resolved, or `..` would be taken from where a symbolic link leads to
    base = Path(os.path.relpath(folder.resolve(), root.resolve())).as_posix()
    parts = [
        Part(name, base, [f"{one}/{file}" for file in files], synset)
        for (one, synset), files in zip(classes.items(), listed, strict=True)
        if synset
    ]
    without = [len(files) for synset, files in zip(classes.values(), listed, strict=True) if not synset]
    if without:
        notes = {"left_out": {"classes": len(without), "images": sum(without), "why": "in no class of ImageNet"}}
    return parts, notes


def _all(known: list[str], name: str, folder: Path) -> list[str]:
    if len(known) != CLASSES:
        raise GranularityError(
            f"samples.shifted: {name}: {folder}: calls classes by their place among the {CLASSES} of ImageNet-1k, but "
            f"there are training images of {len(known)}"
        )
    return known


def _objectnet(mappings: Path, folders: list[str], known: list[str]) -> dict[str, str]:
    """Folder -> its synsets, joined; "" for those that ImageNet does not have."""
    folders_file, labels_file, places_file, file = (mappings / name for name in MAPPINGS)
    label_of_folder, names_of_label = _json(folders_file, str), _json(labels_file, str)
    line_of_place = _json(places_file, int)
    lines = [line.strip() for line in read_text(file).splitlines()]
    try:
        places = {str(place): synset for place, synset in enumerate(known)}
        synset_of_line = {line: places[place] for place, line in line_of_place.items()}
    except KeyError:
        raise GranularityError(f"{mappings}: is not that of ObjectNet 1.0; download it again") from None
    times = Counter(lines)
    synset_of_name = {name: synset_of_line.get(line) for line, name in enumerate(lines) if times[name] == 1}
    found = {}
    for folder in folders:
        if folder not in label_of_folder:
            raise GranularityError(f"{folders_file}: does not have '{folder}'")
        names = names_of_label.get(label_of_folder[folder], "")
        synsets = [synset_of_name.get(name) for name in names.split("; ") if names]
        if None in synsets:
            raise GranularityError(f"{file}: does not have '{names}' once each; is the file whole?")
        found[folder] = SEPARATOR.join(sorted(set(synsets)))
    return found


def _json(file: Path, kind: type) -> dict[str, Any]:
    table = read_json(file)
    if not isinstance(table, dict) or not all(isinstance(value, kind) for value in table.values()):
        raise GranularityError(f"{file}: is no table of ObjectNet's; download it again")
    return table
