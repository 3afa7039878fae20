"""Stage `pixels`: every image read and decoded once, and kept in the small size that training reads.

A training reads each image hundreds of times, and an arm has a dozen trainings: decoding the originals once is what
makes many small trainings cheap.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from PIL import Image, ImageOps

from granularity.data import moments, shards
from granularity.data.images import Images
from granularity.stages.pixels.options import Pixels
from granularity.store.artifacts import CHECKED_BY
from granularity.store.records import Layout, Record, write_records
from granularity.store.task import Task

Encode = Callable[[Image.Image], tuple[Image.Image, bytes]]  # the image as it is kept, and its bytes

BATCH = 256  # images between two looks at the clock
CHUNK = 4096  # images between two saves of what is known of the work so far, at most; does not change the result
SHARD_BYTES = 1 << 28


def run(task: Task) -> None:
    """Write the images, in the order of the sample table, and what is known of them.

    With `format: raw`, `pixels.npy`: uint8 [N, size, size, channels], the centre squares. With `format: jpeg`,
    `shards/NUMBER.jpegs`: JPEGs one after another, their short side `size`.

    `index.parquet`: `sample_id`, and `sha256` of the bytes that were read of the original, whether or not the sample
    table has it; of JPEGs `file` (number of the shard), `offset`, `bytes`, `crc32`, `height` and `width`, too.
    `moments.json`: see :func:`granularity.data.moments.by_split`; of the images as they were before they became JPEGs.

    Raises:
        GranularityError: an image is missing, changed or corrupt; or this Pillow has no JPEG codec.
    """
    options, table = task.options, task.open("samples")
    images = Images(table)
    split = table.table("samples.parquet", {"split": "text"})["split"].to_numpy()
    layout, encode = (_raw if options.format == "raw" else _jpeg)(options, len(images))

    def made(index: int) -> Record:
        image, sha256 = images.hashed(index, options.mode)
        image, data = encode(image)
        notes = {"height": image.height, "width": image.width, "sums": moments.sums_of(image)}
        return data, {"sha256": np.frombuffer(sha256, np.uint8), **{key: np.array(one) for key, one in notes.items()}}

    with (
        task.create({"samples": table}, options.asked, ("format", "size", "mode"), resumable=True) as out,
        ThreadPoolExecutor(task.threads) as pool,
    ):
        index = write_records(
            out,
            layout,
            len(images),
            lambda start, stop: list(pool.map(made, range(start, stop))),
            min(BATCH, CHUNK),
            CHUNK,
            "decoding",
        )
        columns = {"sample_id": pa.array(images.table["sample_id"], pa.string()), "sha256": _hashes(index["sha256"])}
        if options.format == "raw":
            out.describe_array("pixels.npy", np.load(out.path("pixels.npy"), mmap_mode="r", allow_pickle=False))
        else:
            columns |= {name: pa.array(index[name].astype(_whole(index[name]))) for name in shards.COLUMNS}
            for number in range(int(index["file"][-1]) + 1):
                out.described[shards.NAME.format(number)] = {CHECKED_BY: shards.INDEX}
        out.table("index.parquet", pa.table(columns))
        area = index["height"].astype(np.int64) * index["width"]
        out.json(moments.FILE, moments.by_split(split, area, index["sums"]))


def _raw(options: Pixels, count: int) -> tuple[Layout, Encode]:
    """The centre squares as one array."""
    side = (options.size, options.size)
    head = io.BytesIO()
    shape = (count, *side, len(options.mode))
    about = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, about)

    def encode(image: Image.Image) -> tuple[Image.Image, bytes]:
        if image.size != side:
            image = ImageOps.fit(image, side, Image.Resampling.BICUBIC)
        return image, image.tobytes()

    return Layout("pixels.npy", head.getvalue(), reserve=len(head.getvalue()) + count * options.bytes), encode


def _jpeg(options: Pixels, count: int) -> tuple[Layout, Encode]:
    """Whole images as JPEG."""
    shards.check_codec()

    def encode(image: Image.Image) -> tuple[Image.Image, bytes]:
        image = _rectangle(image, options.size)
        image.info.clear()  # such as comments, which Pillow would write
        data = io.BytesIO()
        image.save(data, "JPEG", quality=options.quality)
        return image, data.getvalue()

    return Layout(shards.NAME, limit=SHARD_BYTES), encode


def _rectangle(image: Image.Image, size: int) -> Image.Image:
    """An image whose short side is `size`; of one that is longer than `shards.LONGEST` times that, the centre."""
    short, most = min(image.size), shards.LONGEST * min(image.size)
    if max(image.size) > most:
        left, top = (max(0, side - most) // 2 for side in image.size)
        image = image.crop((left, top, left + min(image.width, most), top + min(image.height, most)))
    if short == size:
        return image
    sides = tuple(size if side == short else round(side * size / short) for side in image.size)
    return image.resize(sides, Image.Resampling.BICUBIC)


def _whole(values: np.ndarray) -> np.dtype:
    """The type of a column: as it is, but numbers of pixels and bytes of one image take four bytes."""
    return np.dtype(np.int32) if values.dtype == np.int64 and values.max(initial=0) < 2**31 else values.dtype


def _hashes(values: np.ndarray) -> pa.Array:
    """A column of SHA-256, of uint8 [N, 32]."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(values), [None, pa.py_buffer(values.tobytes())])
