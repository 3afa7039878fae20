"""What a training costs before it is run: memory and time, for what is asked of a scheduler."""

from __future__ import annotations

from typing import Any

RESIDENT_BYTES = 2**31  # smaller data sets are kept on the device; of larger ones this much is in memory at once
CPU_SIDE = 16  # a training on images of this side takes `Needs.ms` on a CPU; of larger ones, more by their area


def resident_bytes(images: int, picture: int) -> int:
    """Bytes of the pictures that a training holds in memory, at `picture` bytes each."""
    return min(images * picture, RESIDENT_BYTES)


def slower(config: Any) -> float:
    """The factor by which an image takes longer than `Needs` say, which are for a GPU, or small images on a CPU."""
    return 1.0 if config.device == "cuda" else max(1.0, config.pixels.size / CPU_SIDE) ** 2
