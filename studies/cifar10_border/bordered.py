"""Images with a coloured border, as copies of splits of a data set in Parquet: SPLIT-BORDER, such as `train-red`.

The setting of Zhang et al. 2024, Figs. 6 (c) and 13: a border that is on every training image alike and says nothing of
the label. They pad CIFAR-10 with brick red and resize; here an eighth of the side is painted over, so that no size
changes. Borders: `red`; `inverted`, its complement; `mean`, the mean colour of CIFAR-10. Two say the label, for
contrast: `label`, red for every other class of the target, from the first, and inverted for the rest; `swapped`, the
other way round. Copies for tests hold the first 2,500 images of their split, in all of them the same.
"""

import io
from collections.abc import Iterator

from granularity.stages.samples.source import Source
from granularity.stages.samples.sources import parquet

EXTENDS = "source"
RED, MEAN = (150, 50, 50), (125, 123, 114)
INVERTED = tuple(255 - value for value in RED)
COLOURS = {"red": (RED, RED), "inverted": (INVERTED, INVERTED), "mean": (MEAN, MEAN)}  # of even classes and of odd ones
COLOURS |= {"label": (RED, INVERTED), "swapped": (INVERTED, RED)}
SHARE = 8  # of the side over the border's width
TESTED = 2500
files = parquet.files


def read(params, threads: int = 1) -> Source:
    """The images of the splits asked for (`train` and `test` unless others are named), in that order."""
    import pandas as pd

    from granularity.stages.samples.ranks import add

    asked = [params.train or "train", params.val or "test", *params.extra_splits]
    parts = {name: divided(name) for name in asked}
    train, *others = dict.fromkeys(split for split, _ in parts.values())
    splits = {"train": train, "val": others[0] if others else None, "extra_splits": others[1:]}
    found = parquet.read(params.model_copy(update=splits), threads)
    odd = add(found, params)[0][params.target].cat.codes % 2
    copies, colours = [], []
    for name, (split, border) in parts.items():
        of = found.frame[found.frame["split"] == split]
        of = of[:TESTED] if border and split != train else of
        copies.append(of.assign(split=name, sample_id=name + of["sample_id"].str.removeprefix(split)))
        colours += [border and COLOURS[border][one] for one in odd[of.index]]
    frame = pd.concat(copies, ignore_index=True)
    images = bordered(found.root, frame["file"].tolist(), frame["row"].tolist(), colours)
    return Source(frame.drop(columns=["file", "row"]), images=images)


def divided(name: str) -> tuple[str, str]:
    """The data set's split and the border that a split's name says; without one, the images are as they are."""
    split, _, border = name.rpartition("-")
    return (split, border) if border in COLOURS else (name, "")


def bordered(root, places: list[str], rows: list[int], colours: list) -> Iterator[bytes]:
    """The images in their files with their borders; where there is none, the file as it is."""
    from PIL import ImageOps

    from granularity.data.decoding import decode
    from granularity.data.images import Reader

    reader = Reader(root)
    for place, row, colour in zip(places, rows, colours, strict=True):
        data = reader.read(place, row, None, None)
        if colour:
            image, stream = decode(data), io.BytesIO()
            width = min(image.size) // SHARE
            ImageOps.expand(ImageOps.crop(image, width), width, colour).save(stream, "PNG")
            data = stream.getvalue()
        yield data
