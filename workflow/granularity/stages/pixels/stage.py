"""Stage `pixels`: every image read and decoded once, and kept in the small size that training reads."""

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from PIL import Image, ImageOps

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.data import moments, shards
from granularity.data.images import Images
from granularity.stages.pixels.options import Pixels
from granularity.store.artifact import CHECKED_BY
from granularity.store.resume import Layout, Record, write_records
from granularity.store.task import Task

BATCH = 256  # images between two looks at the clock
CHUNK = 4096  # most images between two checkpoints of the index; does not change the result
SHARD_BYTES = 1 << 28
MOST = 1000  # most broken images that a message names


def run(task: Task) -> None:
    """Write the images, in the order of the sample table, and their index (files: docs/artifacts.md).

    `sha256` in the index is of the bytes read from the original, even if the sample table has it; the moments
    (:func:`granularity.data.moments.by_split`) are of the images before they became JPEGs. Raises GranularityError:
    images are missing, changed or corrupt; each is named.
    """
    options, table = task.options, task.open("samples")
    images = Images(table)
    split = table.table("samples.parquet", {"split": "text"})["split"].to_numpy()
    if options.format == "raw":
        layout = Layout.array("pixels.npy", (len(images), options.size, options.size, len(options.mode)), np.uint8)
    else:
        layout = Layout(shards.NAME, limit=SHARD_BYTES)

    def made(index: int) -> Record | GranularityError:
        try:
            image, sha256 = images.hashed(index, options.mode)
        except GranularityError as error:
            return error
        image, data = _encoded(image, options)
        sizes = {"height": np.array(image.height), "width": np.array(image.width)}
        return data, {"sha256": np.frombuffer(sha256, np.uint8), **sizes, "sums": moments.sums_of(image)}

    def batches_from(first: int) -> Iterator[list[Record]]:
        broken: list[GranularityError] = []
        with ThreadPoolExecutor(task.threads) as pool:
            for start in range(first, len(images), BATCH):
                batch = list(pool.map(made, range(start, min(start + BATCH, len(images)))))
                broken += [failure for failure in batch if isinstance(failure, GranularityError)]
                if not broken:
                    yield batch
                interrupt.stop_if_requested()
                if len(broken) > MOST:
                    break
        if broken:  # only after the other images were read, so that one run names all of them
            raise GranularityError(*map(str, broken[:MOST]), *(["... and more"] if len(broken) > MOST else []))

    with task.create({"samples": table}, options.asked, ("format", "size", "mode"), resumable=True) as out:
        words = "decoding", f"batches of {BATCH} images"
        index = write_records(out, layout, len(images), batches_from, BATCH, CHUNK, *words)
        hashes = pa.py_buffer(index["sha256"].tobytes())
        columns = {"sample_id": pa.array(images.table["sample_id"], pa.string())}
        columns["sha256"] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(images), [None, hashes])
        if options.format == "raw":
            out.describe_array("pixels.npy", np.load(out.path("pixels.npy"), mmap_mode="r", allow_pickle=False))
        else:
            for name in shards.COLUMNS:  # pixel and byte counts of one image fit in four bytes
                small = index[name].dtype == np.int64 and index[name].max() < 2**31
                columns[name] = pa.array(index[name].astype(np.int32) if small else index[name])
            for number in range(int(index["file"][-1]) + 1):
                out.described[shards.NAME.format(number)] = {CHECKED_BY: shards.INDEX}
        out.table("index.parquet", pa.table(columns))
        area = index["height"].astype(np.int64) * index["width"]
        out.json(moments.FILE, moments.by_split(split, area, index["sums"]))


def _encoded(image: Image.Image, options: Pixels) -> tuple[Image.Image, bytes]:
    """Return an image as it is kept, and its bytes."""
    if options.format == "raw":
        side = (options.size, options.size)
        image = image if image.size == side else ImageOps.fit(image, side, Image.Resampling.BICUBIC)
        return image, image.tobytes()
    image = _rectangle(image, options.size)
    image.info.clear()  # such as comments, which Pillow would write
    data = io.BytesIO()
    image.save(data, "JPEG", quality=options.quality)
    return image, data.getvalue()


def _rectangle(image: Image.Image, size: int) -> Image.Image:
    """Resize an image to a short side of `size`; crop it to the centre if longer than `shards.LONGEST` times that."""
    short, most = min(image.size), shards.LONGEST * min(image.size)
    if max(image.size) > most:
        left, top = (max(0, side - most) // 2 for side in image.size)
        image = image.crop((left, top, left + min(image.width, most), top + min(image.height, most)))
    if short == size:
        return image
    sides = tuple(size if side == short else round(side * size / short) for side in image.size)
    return image.resize(sides, Image.Resampling.BICUBIC)
