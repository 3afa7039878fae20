"""What a training costs before it is run: memory and time, for what is asked of a scheduler."""

from __future__ import annotations

from typing import Any

RESIDENT_BYTES = 2**31  # of a data set that are in main memory at once, at most
READERS = 8  # that decode JPEG for one GPU; not measured on one
READER_BYTES = 2**28  # of memory of each, with what it has read ahead; reckoned
CPU_SIDE = 16  # a training on images of this side takes `Needs.ms` on a CPU; of larger ones, more by their area


def resident_bytes(images: int, pixels: Any) -> int:
    """Bytes that a training holds in memory for its images, and so do the processes that read them.

    Args:
        pixels: the section `pixels`.
    """
    if pixels.format == "jpeg":
        return READERS * READER_BYTES
    return min(images * pixels.bytes, RESIDENT_BYTES)


def readers(pixels: Any) -> int:
    """The number of processes beside a training on a GPU that read images for it."""
    return READERS if pixels.format == "jpeg" else 0


def slower(config: Any) -> float:
    """The factor by which an image takes longer than `Needs` say, which are for a GPU, or small images on a CPU."""
    return 1.0 if config.device == "cuda" else max(1.0, config.pixels.size / CPU_SIDE) ** 2
