"""What a training costs before it is run: memory and time, for what is asked of a scheduler."""

from __future__ import annotations

from typing import Any

RESIDENT_BYTES = 2**31  # of a data set that are in main memory at once, at most
READERS = 8  # that decode JPEG for one GPU; not measured on one
READER_BYTES = 2**28  # of memory of each, with what it has read ahead; reckoned
WIDEST, WIDTHS = 2048, {"resnet18": 512, "resnet34": 512, "vit_tiny": 192, "vit_small": 384, "vit_base": 768}
SHORT = 2e8  # pixels that tiny networks see in two or three minutes on one CPU
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


def features(model: Any) -> int:
    """The number of features that a network gives its head: reckoned from its name, and 2,048 where that says nothing.

    Args:
        model: the section `model`.
    """
    expansion = 1 if model.name in ("resnet18", "resnet34") else 4
    if channels := (model.args or {}).get("channels"):
        return expansion * max(channels)
    named = [width for part, width in WIDTHS.items() if model.name.startswith(part)]
    return named[0] if named else WIDEST


def slower(config: Any) -> float:
    """The factor by which an image takes longer than `Needs` say, which are for a GPU, or small images on a CPU."""
    return 1.0 if config.device == "cuda" else max(1.0, config.pixels.size / CPU_SIDE) ** 2


def is_short(images: int, pixels: Any) -> bool:
    """Whether starting jobs would take a good part of the time of trainings that see so many images in all."""
    return images * pixels.size**2 <= SHORT
