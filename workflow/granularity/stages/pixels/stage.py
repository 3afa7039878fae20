"""Stage `pixels`: every image read and decoded once, and kept in the small size that training reads.

A training reads each image hundreds of times, and an arm has a dozen trainings: decoding the originals once is what
makes many small trainings cheap.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from granularity.data import moments
from granularity.data.images import Images
from granularity.store.records import Layout, write_records
from granularity.store.task import Task

BATCH = 256  # images between two looks at the clock
CHUNK = 4096  # images between two saves of what is known of the work so far, at most; does not change the result


def run(task: Task) -> None:
    """Write the images, in the order of the sample table, and what is known of them.

    `pixels.npy`: uint8 [N, size, size, channels]: the short side is resized to `size`, and the centre square is kept.
    `index.parquet`: `sample_id` and `sha256` of the bytes that were read of the original, whether or not the sample
    table has it. `moments.json`: see :func:`granularity.data.moments.by_split`.

    Raises:
        GranularityError: an image is missing, changed or corrupt.
    """
    from PIL import Image, ImageOps

    options, table = task.options, task.open("samples")
    images = Images(table)
    split = table.table("samples.parquet", {"split": "text"})["split"].to_numpy()
    side = (options.size, options.size)

    def encode(index: int) -> tuple[bytes, dict[str, np.ndarray]]:
        image, sha256 = images.hashed(index, options.mode)
        if image.size != side:
            image = ImageOps.fit(image, side, Image.Resampling.BICUBIC)
        return image.tobytes(), {"sha256": np.frombuffer(sha256, np.uint8), "sums": moments.sums_of(image)}

    shape = (len(images), *side, len(options.mode))
    head = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, about)
    layout = Layout("pixels.npy", head.getvalue(), reserve=len(head.getvalue()) + len(images) * options.bytes)
    with (
        task.create({"samples": table}, options.model_dump(), resumable=True) as out,
        ThreadPoolExecutor(task.threads) as pool,
    ):
        index = write_records(
            out,
            layout,
            len(images),
            lambda start, stop: list(pool.map(encode, range(start, stop))),
            min(BATCH, CHUNK),
            CHUNK,
            "decoding",
        )
        out.describe_array("pixels.npy", np.load(out.path("pixels.npy"), mmap_mode="r", allow_pickle=False))
        hashes = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(32), len(images), [None, pa.py_buffer(np.ascontiguousarray(index["sha256"]))]
        )
        columns = {"sample_id": pa.array(images.table["sample_id"], pa.string()), "sha256": hashes}
        out.table("index.parquet", pa.table(columns))
        pixels = np.full(len(images), options.size**2, np.int64)
        out.json(moments.FILE, moments.by_split(split, pixels, index["sums"]))
