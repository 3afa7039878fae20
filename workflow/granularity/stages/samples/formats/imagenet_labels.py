"""Files that give the synsets of images which do not lie in folders of their own class."""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.regular import check_regular, read_text
from granularity.stages.samples.formats.imagenet_folders import WNID, stem

DEVKIT, META = Path("ILSVRC2012_devkit_t12", "data"), "meta.mat"
HEADER = "ImageId,PredictionString"
PAIR = re.compile(r"([^\s,]+)[\s,]+(n[0-9]{8})(?:\s.*)?")
LARGEST_META = 4 << 20  # bytes
CLASSES = 1000  # ids above are inner nodes of the hierarchy


def synsets(images: list[str], file: Path, root: Path) -> list[str]:
    """The synset of each image (a file name), in order.

    The formats, told apart by the first line:

    * `490`: ILSVRC2012_ID of the images in the order of their names, as the development kit has them in
      ILSVRC2012_validation_ground_truth.txt. meta.mat, beside it or in ILSVRC2012_devkit_t12/data below root, says
      which synsets these are.
    * `n01751748`: synsets in the order of the images' names.
    * `ILSVRC2012_val_00000001.JPEG n01751748`, or with a comma or tab between, with or without the extension, and
      whatever follows: Tiny ImageNet's val_annotations.txt, Kaggle's LOC_val_solution.csv.

    Raises:
        GranularityError: the file is missing or malformed, or has lines for other images than there are.
    """
    lines = _lines(file)
    if lines[:1] == [HEADER]:
        lines[0] = ""
    first = next((line for line in lines if line), "")
    if WNID.fullmatch(first):
        return [_match(WNID, file, number, line)[0] for number, line in _in_order(images, file, lines)]
    if first.isdecimal():
        wnids = _wnids(file, root)
        found = []
        for number, line in _in_order(images, file, lines):
            key = int(_match(re.compile("[0-9]{1,9}"), file, number, line)[0])
            if not 1 <= key <= CLASSES or key not in wnids:
                raise GranularityError(f"{file}: line {number}: {key} is no ILSVRC2012_ID of a class (1 to {CLASSES})")
            found.append(wnids[key])
        return found
    of_name = {}
    for number, line in enumerate(lines, 1):
        if line:
            name, synset = _match(PAIR, file, number, line).groups()
            name = stem(name)
            if name in of_name:
                raise GranularityError(f"{file}: line {number}: has image '{name}' a second time")
            of_name[name] = synset
    names = [stem(image) for image in images]
    missing, more = [name for name in names if name not in of_name], of_name.keys() - names
    if missing or more:
        which = f"has no line for '{missing[0]}'" if missing else f"has '{min(more)}', which is not among the images"
        raise GranularityError(f"{file}: {which}; it must have one line for each of the {len(images)} images")
    return [of_name[name] for name in names]


def _in_order(images: list[str], file: Path, lines: list[str]) -> list[tuple[int, str]]:
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line]
    if len(numbered) != len(images):
        raise GranularityError(f"{file}: has {len(numbered)} labels, but there are {len(images)} images")
    return numbered


def _match(pattern: re.Pattern, file: Path, number: int, line: str) -> re.Match:
    match = pattern.fullmatch(line)
    if match is None:
        raise GranularityError(f"{file}: line {number}: '{line[:60]}' is no label of the kind that the first line has")
    return match


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in read_text(file).splitlines()]
    except GranularityError as error:
        raise GranularityError(f"samples.labels: {error}") from None


def _wnids(file: Path, root: Path) -> dict[int, str]:
    """ILSVRC2012_ID -> WNID, of meta.mat.

    Source: the development kit's readme.txt, "synsets" (fields ILSVRC2012_ID, WNID, words, gloss, num_children,
    children, wordnet_height, num_train_images).
    """
    places = [file.parent / META, root / DEVKIT / META]
    meta = next((place for place in places if place.is_file()), None)
    if meta is None:
        raise GranularityError(f"{file}: holds numbers, which meta.mat explains; put it beside, or at {places[1]}")
    if check_regular(meta).st_size > LARGEST_META:
        raise GranularityError(f"{meta}: is larger than {LARGEST_META:,} bytes; the development kit's is not")
    try:
        # in a process of its own: SciPy's reader is not safe with broken files, and may take the process with it
        with ProcessPoolExecutor(1) as pool:
            pairs = pool.submit(_meta, meta).result()
    except Exception as error:  # SciPy raises whatever comes (struct, zlib, index, key, memory, ... errors)
        what = " ".join(str(error).split())[:200]
        raise GranularityError(f"{meta}: is no intact meta.mat of ILSVRC 2012 ({what}); download it again") from None
    for key, name in pairs.items():
        if not WNID.fullmatch(name):
            raise GranularityError(f"{meta}: ILSVRC2012_ID {key} has the WNID {name[:20]!r}, which is none")
    return pairs


def _meta(file: Path) -> dict[int, str]:
    from scipy.io import loadmat

    table = loadmat(file, squeeze_me=True, variable_names=["synsets"])["synsets"]
    ids, wnids = table["ILSVRC2012_ID"].ravel().tolist(), table["WNID"].ravel().tolist()
    return {int(key): str(name) for key, name in zip(ids, wnids, strict=True)}
