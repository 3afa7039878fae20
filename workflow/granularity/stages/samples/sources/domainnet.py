"""DomainNet: the same 345 classes of things in six domains.

clipart/aircraft_carrier/clipart_001_000001.jpg     and infograph, painting, quickdraw, real, sketch
clipart_train.txt, clipart_test.txt                 one line per image, "clipart/zebra/clipart_345_000001.jpg 344"; the
                                                    lists can lie in a folder `splits`, too

Splits: `clipart_train`, `clipart_test`, ... Ranks: `label`, the folder, and `domain`. Images of the domain that is
trained on are ID, those of the others OOD. Only the lists that the configuration asks for are read.

Layout: http://ai.bu.edu/M3SDA/; https://github.com/p-lambda/wilds, dataset_preprocessing/domainnet (the lists);
https://github.com/KaiyangZhou/Dassl.pytorch, DATASETS.md (`splits`). No class need be in every list: painting_train.txt
has no t-shirt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.regular import read_text
from granularity.stages.samples.options import Samples
from granularity.stages.samples.published import named
from granularity.stages.samples.source import Source

IMAGES = 586_575
DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
LINE = re.compile(r"([^/\0]+)/([^/\0]+)/([^/\0]+) (\d{1,6})")


def files(samples: Samples) -> Iterator[Path]:
    for name in named(samples).values():
        yield from _places(samples.root, name)


def folders(samples: Samples) -> tuple[Path, ...]:
    return ()  # the lists name the images


def read(params: Samples, threads: int = 1) -> Source:
    """The images in the lists of samples.train, val and extra_splits, in the order of these and of their lines.

    `sample_id` is the path.

    Raises:
        GranularityError: no split to train on, or a list that is missing or empty; a malformed line, or one of an
            image that is there already or lies in another domain; a folder with two numbers, or a number with two.
    """
    import numpy as np
    import pandas as pd

    lists = _lists(params.root)
    if params.train is None:
        raise GranularityError(f"samples.train: name the split to train on; {params.root} has {[*lists]}")
    asked = named(params)
    for key, name in asked.items():
        if name not in lists:
            raise GranularityError(f"samples.{key}: there is no list '{name}.txt'; {params.root} has {[*lists]}")
    names = list(dict.fromkeys(asked.values()))
    known: dict[str, str] = {}  # number -> class
    numbers: dict[str, str] = {}  # class -> number
    paths: dict[str, None] = {}
    labels, counts = [], []
    for name in track(names, len(names), "reading lists", "lists"):
        before = len(paths)
        for line, folder, path, number in _lines(lists[name], name.rpartition("_")[0]):
            if known.setdefault(number, folder) != folder:
                raise GranularityError(
                    f"{lists[name]}: line {line}: class '{folder}' has number {number}, but so has '{known[number]}'"
                )
            if numbers.setdefault(folder, number) != number:
                raise GranularityError(
                    f"{lists[name]}: line {line}: class '{folder}' has number {number}, but {numbers[folder]} before"
                )
            if path in paths:
                raise GranularityError(f"{lists[name]}: line {line}: '{path}' stands in a list already")
            paths[path] = None
            labels.append(int(number))
        counts.append(len(paths) - before)
    order = sorted(known, key=int)
    positions = np.searchsorted([int(number) for number in order], labels)
    domains = [name.rpartition("_")[0] for name in names]
    trained = domains[0]
    used = [domain for domain in DOMAINS if domain in domains]
    file = pd.Series([*paths], dtype="str")
    frame = pd.DataFrame(
        {
            "sample_id": file,
            "split": pd.Categorical.from_codes(np.repeat(np.arange(len(names)), counts), names),
            "distribution": pd.Categorical.from_codes(
                np.repeat([int(domain != trained) for domain in domains], counts), ["ID", "OOD"]
            ),
            "file": file,
            "label": pd.Categorical.from_codes(positions, [known[number] for number in order]),
            "domain": pd.Categorical.from_codes(np.repeat([used.index(domain) for domain in domains], counts), used),
        }
    )
    return Source(frame)


def _places(root: Path, name: str) -> tuple[Path, Path]:
    """Where the list of a split may lie."""
    return root / f"{name}.txt", root / "splits" / f"{name}.txt"


def _lists(root: Path) -> dict[str, Path]:
    """The split lists that there are, by the name of the split."""
    found = {}
    for name in (f"{domain}_{part}" for domain in DOMAINS for part in ("train", "test")):
        there = [file for file in _places(root, name) if file.is_file()]
        if there:
            found[name] = there[0]
    if not found:
        raise GranularityError(f"{root}: holds no lists of DomainNet (clipart_train.txt, ...), nor does its splits/")
    return found


def _lines(file: Path, domain: str) -> Iterator[tuple[int, str, str, str]]:
    """Number of the line, class, path and number of the class, for each image."""
    lines = read_text(file).splitlines()
    if not lines:
        raise GranularityError(f"{file}: is empty")
    for line, text in enumerate(lines, start=1):
        match = LINE.fullmatch(text.strip())
        if match is None or {match[2], match[3]} & {".", ".."}:
            raise GranularityError(f"{file}: line {line}: {text[:100]!r} is no '{domain}/CLASS/IMAGE NUMBER'")
        if match[1] != domain:
            raise GranularityError(f"{file}: line {line}: '{match[1]}' is not the domain of this list, {domain}")
        yield line, match[2], f"{match[1]}/{match[2]}/{match[3]}", str(int(match[4]))
