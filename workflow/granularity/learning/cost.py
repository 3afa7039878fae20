"""Estimate memory and time of a training before it runs, for requests to a scheduler."""

import math
from typing import Any

RESIDENT_BYTES = 2**31  # most bytes of a data set in main memory at once
READERS = 8  # processes that decode JPEG for one GPU; not measured
READER_BYTES = 2**28  # memory of each, including what it has read ahead; calculated
WIDEST, WIDTHS = 2048, {"resnet18": 512, "resnet34": 512, "vit_tiny": 192, "vit_small": 384, "vit_base": 768}
SHORT = 3e7  # pixels that tiny networks process in half a minute on one CPU
GUESSED = 10_000  # images of a data set whose size is unknown until it is read
CPU_SIDE = 16  # images of this side take `Needs.ms` on a CPU; larger ones more, in proportion to their area


def resident_bytes(images: int, pixels: Any) -> int:
    """Return the bytes of images (section `pixels`) that a training and its readers hold in memory."""
    if pixels.format == "jpeg":
        return READERS * READER_BYTES
    return min(images * pixels.bytes, RESIDENT_BYTES)


def readers(pixels: Any) -> int:
    """Return the number of processes that read images for a training on a GPU."""
    return READERS if pixels.format == "jpeg" else 0


def features(model: Any) -> int:
    """Return the number of inputs of the head of a network (section `model`), by its name; 2,048 if unknown."""
    if channels := (model.args or {}).get("channels"):
        return max(channels) * (1 if model.name in ("resnet18", "resnet34") else 4)
    return next((width for part, width in WIDTHS.items() if model.name.startswith(part)), WIDEST)


def jobs_for(runs: int, epochs: int, images: int | None, pixels: Any) -> int:
    """Return the number of jobs for some trainings: each takes half a minute on one CPU, or trains one network.

    Shorter jobs would take as long to start. As many cores can share the work.
    """
    seen = runs * epochs * (GUESSED if images is None else images) * pixels.size**2
    return max(1, min(runs, math.ceil(seen / SHORT)))


def of_training(config: Any, runs: int, epochs: int) -> dict[str, Any]:
    """Return the requests of a job with `runs` trainings: keyword arguments of :class:`granularity.base.stage.Job`."""
    # `Needs` apply to a GPU, or to small images on a CPU.
    slower = 1.0 if config.device == "cuda" else max(1.0, config.pixels.size / CPU_SIDE) ** 2
    return {
        "passes": runs * epochs,
        "memory": lambda images: resident_bytes(images, config.pixels),
        "processes": config.jobs.processes,
        "readers": readers(config.pixels),
        "slower": slower,
    }
