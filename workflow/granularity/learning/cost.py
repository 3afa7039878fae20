"""What a training costs before it is run: memory and time, for what is asked of a scheduler."""

import math
from typing import Any

RESIDENT_BYTES = 2**31  # of a data set that are in main memory at once, at most
READERS = 8  # that decode JPEG for one GPU; not measured on one
READER_BYTES = 2**28  # of memory of each, with what it has read ahead; reckoned
WIDEST, WIDTHS = 2048, {"resnet18": 512, "resnet34": 512, "vit_tiny": 192, "vit_small": 384, "vit_base": 768}
SHORT = 3e7  # pixels that tiny networks see in half a minute on one CPU
GUESSED = 10_000  # images of a data set whose number nothing says before they are read
CPU_SIDE = 16  # a training on images of this side takes `Needs.ms` on a CPU; of larger ones, more by their area


def resident_bytes(images: int, pixels: Any) -> int:
    """Bytes that a training, with the processes that read for it, holds in memory of images of the section `pixels`."""
    if pixels.format == "jpeg":
        return READERS * READER_BYTES
    return min(images * pixels.bytes, RESIDENT_BYTES)


def readers(pixels: Any) -> int:
    """The number of processes beside a training on a GPU that read images for it."""
    return READERS if pixels.format == "jpeg" else 0


def features(model: Any) -> int:
    """How many features a network of the section `model` gives its head: by its name, 2,048 where that says nothing."""
    if channels := (model.args or {}).get("channels"):
        return max(channels) * (1 if model.name in ("resnet18", "resnet34") else 4)
    return next((width for part, width in WIDTHS.items() if model.name.startswith(part)), WIDEST)


def jobs_for(runs: int, epochs: int, images: int | None, pixels: Any) -> int:
    """Into how many jobs trainings are cut: each takes half a minute on one CPU, or trains one network.

    Shorter jobs would take as long to start. So many cores can share the work.
    """
    seen = runs * epochs * (GUESSED if images is None else images) * pixels.size**2
    return max(1, min(runs, math.ceil(seen / SHORT)))


def of_training(config: Any, runs: int, epochs: int) -> dict[str, Any]:
    """What a job of so many trainings asks for: keyword arguments of :class:`granularity.base.stage.Job`."""
    # `Needs` are for a GPU, or small images on a CPU.
    slower = 1.0 if config.device == "cuda" else max(1.0, config.pixels.size / CPU_SIDE) ** 2
    return {
        "passes": runs * epochs,
        "memory": lambda images: resident_bytes(images, config.pixels),
        "processes": config.jobs.processes,
        "readers": readers(config.pixels),
        "slower": slower,
    }
