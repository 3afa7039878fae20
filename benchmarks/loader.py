"""From JPEG to a training batch: images per second of one core, ours against torch's DataLoader with torchvision.

    python benchmarks/loader.py [IMAGES] [READERS]

Both make the same batches, normalised float32 [64, 3, 224, 224], of the same JPEGs (short side 256, quality 95): ours
from the shards of stage `pixels`, the other from a folder of files, by torchvision's ImageFolder and transforms.v2. In
the last row it reads the originals and resizes them, as a training does that has no stage `pixels`. By default both
read in this one process, and seconds are of its CPU time, so that other work on the machine does not count; with
READERS, both have that many processes, and seconds are those of a clock.

The photographs are those of Tiny ImageNet, `tiny-imagenet/train.parquet` below $GRANULARITY_DATA, enlarged from 64 px
to 500 x 375; without them, pictures of waves of the same size. They take turns, five times each; the median counts.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from granularity.data.shards import Shards
from granularity.learning.dataset import Data
from granularity.learning.loop import Batches
from granularity.learning.options import Augment
from granularity.store.artifacts import Artifact
from support import tasks
from support.photographs import photograph

BATCH, SIZE, CROP, TURNS = 64, 256, 224, 5
LARGE, CLASSES = (500, 375), 2
AUGMENT = {
    "crop 224, mirror": ({}, [v2.RandomCrop(CROP)]),
    "resized crop": ({"scale": (0.08, 1)}, [v2.RandomResizedCrop(CROP)]),
    "resized crop, RandAugment": (
        {"scale": (0.08, 1), "policy": {"name": "RandAugment"}},
        [v2.RandomResizedCrop(CROP), v2.RandAugment()],
    ),
}


def originals(root: Path, count: int) -> str:
    """Write photographs below a folder; returns what they are."""
    file = Path(os.environ.get("GRANULARITY_DATA", "")) / "tiny-imagenet" / "train.parquet"
    if os.environ.get("GRANULARITY_DATA") and file.is_file():
        import pyarrow.parquet as pq

        rows = next(pq.ParquetFile(file).iter_batches(count, columns=["img"])).column("img").to_pylist()
        small = (Image.open(io.BytesIO(row["bytes"])).convert("RGB") for row in rows)
        images, what = (one.resize(LARGE, Image.Resampling.BICUBIC) for one in small), "Tiny ImageNet, enlarged"
    else:
        images, what = (photograph(i, *LARGE) for i in range(count)), "waves of colour"
    for i, image in enumerate(images):
        place = root / f"c{i % CLASSES}" / f"{i:05d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        image.save(place, quality=95)
    return what


def kept(root: Path, folder: Path) -> Data:
    """The shards of these photographs, and the JPEGs in them as files."""
    samples = {"source": "folder", "root": str(root), "ranks": ["kind"], "target": "kind", "train_size": "all"}
    table = tasks.run("samples", folder / "samples", samples | {"validation": CLASSES})
    made = tasks.run(
        "pixels", folder / "pixels", {"size": SIZE, "mode": "RGB", "format": "jpeg"}, samples=folder / "samples"
    )
    shards = Shards(made)
    for i, name in enumerate(table.table("samples.parquet")["file"]):
        place = folder / "files" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(shards.read(i))
    return Data(Artifact.open(folder / "samples"), made, torch.device("cpu"))


def ours(data: Data, options: dict) -> Callable[[], Iterator[torch.Tensor]]:
    def epoch() -> Iterator[torch.Tensor]:
        batches = Batches(len(data.train), BATCH, 0)
        feed = data.feed(batches, batches.per_epoch, Augment(crop=CROP, flip=True, **options), 0)
        yield from map(feed, range(batches.per_epoch))

    return epoch


def theirs(root: Path, data: Data, transforms: list, readers: int) -> Callable[[], Iterator[torch.Tensor]]:
    mean, std = (one.tolist() for one in data.moments)
    last = [v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]
    files = ImageFolder(root, v2.Compose([*transforms, *last]))

    def epoch() -> Iterator[torch.Tensor]:
        loader = DataLoader(files, BATCH, shuffle=True, num_workers=readers, drop_last=True)
        yield from (images for images, _ in loader)

    return epoch


def pace(epoch: Callable[[], Iterator[torch.Tensor]], clock: Callable[[], float], readers: int) -> float:
    """Images per second and core."""
    start, images = clock(), 0
    for batch in epoch():
        assert batch.shape == (BATCH, 3, CROP, CROP)
        images += len(batch)
    return images / (clock() - start) / max(1, readers)


def main() -> None:
    count, readers = (int(given or usual) for given, usual in zip_longest(sys.argv[1:], ("400", "0")))
    torch.set_num_threads(1)
    os.environ["GRANULARITY_READERS"] = str(readers)
    clock = time.perf_counter if readers else time.process_time
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        what = originals(folder / "originals", count)
        data = kept(folder / "originals", folder)
        size = np.mean([len(Shards(Artifact.open(folder / "pixels")).read(i)) for i in range(20)])
        print(f"{count} photographs ({what}), {LARGE[0]} x {LARGE[1]}; kept in {size / 1000:.0f} kB each")
        print(
            f"images per second and core, {f'{readers} readers each' if readers else 'in one process, of its CPU time'}"
        )
        print(f"{'':42} {'ours':>7} {'peer':>7} {'ratio':>6} {'goal':>5}")
        cases = [(f"{label}, same JPEGs", options, peer, "files") for label, (options, peer) in AUGMENT.items()]
        cases.append(
            ("crop 224, mirror, peer resizes originals", {}, [v2.Resize(SIZE), v2.RandomCrop(CROP)], "originals")
        )
        for label, options, transforms, root in cases:
            here, there = ours(data, options), theirs(folder / root, data, transforms, readers)
            found = [(pace(here, clock, readers), pace(there, clock, readers)) for _ in range(TURNS)]
            mine, peer = (statistics.median(one) for one in zip(*found, strict=True))
            print(f"{label:42} {mine:7.0f} {peer:7.0f} {mine / peer:6.2f} {1.0:5.2f}")
            rows.append(
                {
                    "work": label,
                    "ours": round(mine, 1),
                    "peer": round(peer, 1),
                    "ratio": round(mine / peer, 3),
                    "goal": 1.0,
                }
            )
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
