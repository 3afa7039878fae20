"""Stage `pixels`: every image decoded once, to the small square that training reads.

A training reads each image hundreds of times, and an arm has a dozen trainings: decoding once and memory-mapping the
result is what makes many small trainings cheap. The short side is resized to `size` and the centre square kept.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from granularity.data.images import Images
from granularity.store.chunks import write_rows
from granularity.store.task import Task

BATCH = 256  # images between two looks at the clock
CHUNK = 4096  # images between two saves of the work so far, at most; does not change the result


def run(task: Task) -> None:
    """Write `pixels.npy`: uint8 [N, size, size, channels], rows as in the sample table.

    Raises:
        GranularityError: an image is missing, changed or corrupt.
    """
    from PIL import Image, ImageOps

    options, table = task.options, task.open("samples")
    images = Images(table)
    side = (options.size, options.size)

    def decode(index: int) -> np.ndarray:
        image = images.load(index, options.mode)
        if image.size != side:
            image = ImageOps.fit(image, side, Image.Resampling.BICUBIC)
        return np.asarray(image, dtype=np.uint8).reshape(*side, -1)

    with (
        task.create({"samples": table}, options.model_dump(), resumable=True) as out,
        ThreadPoolExecutor(task.threads) as pool,
    ):
        write_rows(
            out,
            "pixels.npy",
            len(images),
            lambda start, stop: np.stack(list(pool.map(decode, range(start, stop)))),
            min(BATCH, CHUNK),
            CHUNK,
            "decoding",
        )
