"""Stage `pixels`: every image decoded once, to the small square that training reads.

A training reads each image hundreds of times, and an arm has a dozen trainings: decoding once and memory-mapping the
result is what makes many small trainings cheap. The short side is resized to `size` and the centre square kept.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from granularity.data.images import Images
from granularity.stages.pixels.options import Pixels
from granularity.store import artifacts
from granularity.store.artifacts import Artifact
from granularity.store.chunks import write_rows

BATCH = 256  # images between two looks at the clock


def run(params: Pixels, samples: Path, output: Path, threads: int = 1, chunk: int = 4096) -> None:
    """Write `pixels.npy`: uint8 [N, size, size, channels], rows as in the sample table.

    Raises:
        GranularityError: an image is missing, changed or corrupt.
    """
    from PIL import Image, ImageOps

    table = Artifact.open(samples, "samples")
    images = Images(table)
    resolved = params.model_dump()
    if table.params.get("checksums") == "size":  # images of the same names and sizes: told apart by where they lie
        resolved["root"] = table.params.get("root")
    side = (params.size, params.size)

    def decode(index: int) -> np.ndarray:
        image = images.load(index, params.mode)
        if image.size != side:
            image = ImageOps.fit(image, side, Image.Resampling.BICUBIC)
        return np.asarray(image, dtype=np.uint8).reshape(*side, -1)

    with (
        artifacts.create(
            output, "pixels", "granularity.stages.pixels.stage", {"samples": table}, resolved, resumable=True
        ) as out,
        ThreadPoolExecutor(threads) as pool,
    ):
        write_rows(
            out,
            "pixels.npy",
            len(images),
            lambda start, stop: np.stack(list(pool.map(decode, range(start, stop)))),
            min(BATCH, chunk),
            chunk,
            "decoding",
        )
