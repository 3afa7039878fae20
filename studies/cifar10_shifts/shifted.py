"""Images of a data set in Parquet that are shifted, as copies of its splits: SPLIT-SHIFT, such as `test-grey`.

Shifts of all that one sees: `plain`, none; `hue` (by half a turn), `grey`, `noise` and `noisier` (Gaussian, of
deviation 25 and 60 of 255), `blur` and `blurrier` (Gaussian, of radius 1 and 2). Borders an eighth of the side wide,
as in bordered.py: `red`, `inverted` (its complement), `mean` (the mean colour of CIFAR-10). And objects on other
backgrounds, what is in a soft circle in the middle on a piece of an image of Tiny ImageNet: `shared`, of landscapes,
whatever the label; `grouped`, of landscapes for every other class of the target, from the first, of meals for the
rest; `swapped`, the other way round; `other`, of fruit; `negative`, as shared, in the negative; `none`, the mean
colour.

Copies hold the first images of their split, 10,000 to train on and 1,500 for tests; a row is of the same image in all
of them, on the same piece of a background, but for the pool that it is from.
"""

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter, ImageOps
from pydantic import Field

from granularity.data.decoding import decode
from granularity.data.images import Reader
from granularity.stages.samples.ranks import add
from granularity.stages.samples.source import Source
from granularity.stages.samples.sources import parquet

EXTENDS = "source"
TEXT = "For `shifted`: the folder of Tiny ImageNet in Parquet, which backgrounds are cut from."
OPTIONS = {"backgrounds": (Path | None, Field(None, description=TEXT))}
TRAINED, TESTED = 10000, 1500  # images of copies, at most
RED, MEAN = (150, 50, 50), (125, 123, 114)
SHARE = 8  # of the side over a border's width
INSIDE, OUTSIDE = 0.6, 0.9  # where an object begins to fade and where it ends, from the centre, in halves of the side
MEALS = ("n07711569", "n07871810", "n07873807", "n07875152")  # mashed potato, meat loaf, pizza, pie
LANDSCAPES = ("n09193705", "n09246464", "n09332890", "n09428293")  # alp, cliff, lakeside, seashore
FRUIT = ("n07720875", "n07747607", "n07749582", "n07753592")  # pepper, orange, lemon, banana
POOLS = (LANDSCAPES, MEALS, FRUIT)
files = parquet.files


def folders(samples) -> tuple[Path | None, ...]:
    """What a sample table is made from."""
    return samples.root, samples.backgrounds


def hue(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    turned, *rest = image.convert("HSV").split()
    return Image.merge("HSV", [turned.point(lambda value: (value + 128) % 256), *rest]).convert("RGB")


def grey(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    return image.convert("L").convert("RGB")


def noise(image: Image.Image, rng: np.random.Generator, deviation: float) -> Image.Image:
    values = np.asarray(image) + rng.normal(0, deviation, (image.height, image.width, 3))
    return Image.fromarray(values.round().clip(0, 255).astype(np.uint8))


def blur(image: Image.Image, rng: np.random.Generator, radius: float) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(radius))


def border(image: Image.Image, rng: np.random.Generator, colour: tuple[int, ...]) -> Image.Image:
    width = min(image.size) // SHARE
    return ImageOps.expand(ImageOps.crop(image, width), width, colour)


SHIFTS = {"hue": hue, "grey": grey, "noise": partial(noise, deviation=25), "noisier": partial(noise, deviation=60)}
SHIFTS |= {"plain": lambda image, rng: image, "blur": partial(blur, radius=1), "blurrier": partial(blur, radius=2)}
SHIFTS |= {"red": partial(border, colour=RED), "mean": partial(border, colour=MEAN)}
SHIFTS |= {"inverted": partial(border, colour=tuple(255 - value for value in RED))}
GROUNDS = ("shared", "grouped", "swapped", "other", "negative", "none")


def on(ground: str, pools: list, odd: int, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The object of an image, of a class of the target that is odd or even, on a background."""
    (width, height), (which, *corner) = image.size, rng.random(3)
    down, right = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    kept = ((OUTSIDE - np.hypot(down, right)) / (OUTSIDE - INSIDE)).clip(0, 1)
    behind = Image.new("RGB", image.size, MEAN)
    if ground != "none":
        chosen = {"grouped": odd, "swapped": 1 - odd, "other": 2}.get(ground, 0)
        whole = pools[chosen][int(which * len(pools[chosen]))]
        left, top = (
            int(at * (most - least + 1)) for at, most, least in zip(corner, whole.size, image.size, strict=True)
        )
        behind = whole.crop((left, top, left + width, top + height))
        behind = ImageOps.invert(behind) if ground == "negative" else behind
    return Image.composite(image, behind, Image.fromarray((255 * kept).astype(np.uint8)))


def divided(name: str) -> tuple[str, str]:
    """The data set's split and the shift that a split's name says; without one, the images are as they are."""
    split, _, shift = name.rpartition("-")
    return (split, shift) if shift in (*SHIFTS, *GROUNDS) else (name, "")


def read(params, threads: int = 1) -> Source:
    """The images of the splits asked for (`train` and `test` unless others are named), in that order."""
    import pandas as pd

    asked = [params.train or "train", params.val or "test", *params.extra_splits]
    parts = {name: divided(name) for name in asked}
    train, *others = dict.fromkeys(split for split, _ in parts.values())
    splits = {"train": train, "val": others[0] if others else None, "extra_splits": others[1:]}
    found = parquet.read(params.model_copy(update=splits), threads)
    odd = add(found, params)[0][params.target].cat.codes % 2
    copies, what = [], []
    for name, (split, shift) in parts.items():
        of = found.frame[found.frame["split"] == split]
        of = of[: TRAINED if split == train else TESTED] if shift else of
        copies.append(of.assign(split=name, sample_id=name + of["sample_id"].str.removeprefix(split)))
        what += [(shift, int(one), [int(split == train), i]) for i, one in enumerate(odd[of.index])]
    frame = pd.concat(copies, ignore_index=True)
    pools = pools_of(params, threads) if {shift for shift, *_ in what} & {*GROUNDS} - {"none"} else []
    images = shifted(found.root, frame["file"].tolist(), frame["row"].tolist(), what, pools)
    return Source(frame.drop(columns=["file", "row"]), images=images)


def pools_of(params, threads: int) -> list[list[Image.Image]]:
    """The images that backgrounds are cut from: landscapes, meals and fruit."""
    splits = {"root": params.backgrounds, "hub": None, "train": "train", "val": None, "extra_splits": []}
    found = parquet.read(params.model_copy(update=splits), threads)
    frame, reader = found.frame[found.frame["split"] == "train"], Reader(found.root)
    places = [frame.loc[frame[found.ranks[0]].isin(pool), ["file", "row"]] for pool in POOLS]
    return [[decode(reader.read(*place, None, None)) for place in pool.itertuples(index=False)] for pool in places]


def shifted(root, places: list[str], rows: list[int], what: list, pools: list) -> Iterator[bytes]:
    """The images in their files, shifted; where they are not, the file as it is."""
    reader = Reader(root)
    for place, row, (shift, odd, seed) in zip(places, rows, what, strict=True):
        data = reader.read(place, row, None, None)
        if shift:
            made = SHIFTS.get(shift) or partial(on, shift, pools, odd)
            stream = io.BytesIO()
            made(decode(data).convert("RGB"), np.random.default_rng(seed)).save(stream, "PNG")
            data = stream.getvalue()
        yield data
