"""Reading the images that a sample table points to."""

from __future__ import annotations

import functools
import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.artifacts import Artifact
from granularity.errors import GranularityError

if TYPE_CHECKING:
    from PIL import Image


class Images:
    """The images of a sample table, in its row order; a changed or corrupt file is an error that names it."""

    def __init__(self, samples: Artifact):
        self.table = samples.table("samples.parquet", ["sample_id", "file", "row", "sha256"])
        self.root = Path(samples.params["root"] or samples.path)

    def __len__(self) -> int:
        return len(self.table)

    def load(self, index: int, mode: str = "RGB") -> Image.Image:
        """Decode one image, upright (EXIF) and in the colour mode asked for.

        Raises:
            GranularityError: the file is gone, has changed since the sample table was made, or is no image.
        """
        from PIL import Image, ImageOps

        sample = self.table.iloc[index]
        file = self.root / sample["file"]
        try:
            data = file.read_bytes() if file.suffix != ".parquet" else _parquet_images(file)[sample["row"]]
        except OSError as error:
            raise GranularityError(f"{file}: cannot be read ({error.strerror})") from None
        if hashlib.sha256(data).hexdigest() != sample["sha256"]:
            raise GranularityError(f"{file}: has changed since the sample table was made; make the samples again")
        try:
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
            return (_eight_bits(image) if image.mode.startswith("I") else image).convert(mode)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise GranularityError(f"{file}: cannot be decoded as an image ({error}); repair or remove it") from None


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey, scaled; Pillow's own conversion turns every value above 255 white."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(np.clip(np.asarray(image) // 256, 0, 255).astype(np.uint8))


@functools.lru_cache(maxsize=4)
def _parquet_images(file: Path) -> list[bytes]:
    import pyarrow.parquet as pq

    return pq.read_table(file, columns=["img"]).column("img").combine_chunks().field("bytes").to_pylist()
