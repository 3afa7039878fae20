"""What a job asks a scheduler for: memory, time and threads, by stage, size of the data set, and attempt.

The numbers are measured (benchmarks/resources.py; the folder `benchmarks/` of a run) and rounded up: too much costs a
little waiting, too little another attempt, which asks for twice as much and goes on where the first one had to stop.
Pure Python, because every dry run asks.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.plan import jobs
from granularity.store.artifacts import Artifact

# Images, as far as a source says: for what is asked before the sample table is made.
SIZES = {"digits": 1797, "cifar": 60_000, "mnist": 814_255, "svhn": 630_420, "domainnet": 586_575, "wilds": 525_000}
SIZES |= {"imagenet": 1_331_167, "imagenet21k": 14_197_122, "inaturalist": 3_286_843}
UNKNOWN = 1_000_000
MANY = 20_000  # images from which on threads pay


@dataclass(frozen=True)
class Needs:
    """Of a job's first attempt.

    Attributes:
        memory_mb: of any such job: Python with its libraries, and the two Snakemakes around it on a cluster (300).
        memory_kb: what an image adds.
        minutes: of any such job.
        ms: what an image and pass over it add, on one thread or a GPU.
        threads: for many images; only where their number decides nothing but the time.
    """

    memory_mb: int
    memory_kb: float
    minutes: int
    ms: float = 0.0
    threads: int = 1


NEEDS = {
    "samples": Needs(1000, 1, 15, 5.0, threads=8),
    "pixels": Needs(1000, 1, 15, 20.0, threads=8),
    "encoder": Needs(1500, 1, 30, 2.0),
    "embedding": Needs(2000, 1, 30, 5.0),
    "clusters": Needs(1000, 16, 15, 0.0003),
    "label_space": Needs(1000, 2, 15, 1.0),
    "pretrain": Needs(1500, 1, 30, 2.0),
    "finetune": Needs(1500, 2, 30, 2.0),
    "probe": Needs(1500, 60, 30, 20.0),
    "theory_runs": Needs(2000, 0, 240),
    "theory": Needs(1500, 0, 60),
    "report": Needs(1500, 1, 30, 0.1),
}
GPU_KINDS = ("encoder", "embedding", "clusters", "pretrain", "finetune", "probe", "theory_runs")
CUDA_MB = 4000  # of main memory, in a process that uses a GPU
PUBLISHED_MB, PUBLISHED_MS = 8000, 1000.0  # an encoder of the size of ViT-L/14: its memory; an image on a CPU
CLASS_BYTES = 40  # of main memory, in a linear probe, for each image and class
MANY_CLASSES = 2000  # of a probed rank; up to there a probe takes `ms`
CPU_SIDE = 16  # a training on images of this side takes `ms` on a CPU; of larger ones, more by their area


def memory_mb(config: Config, kind: str, values: Mapping[str, str], attempt: int = 1) -> int:
    """Of a job, given its wildcards."""
    needs, count = NEEDS[kind], images(config, kind, values)
    process = PUBLISHED_MB if _published(config, kind) else needs.memory_mb
    process += CUDA_MB if uses_gpu(config, kind) else 0
    process += count * needs.memory_kb / 1e3 + _pictures(config, kind, count) / 1e6
    process += count * _classes(config, kind, values) * CLASS_BYTES / 1e6
    return round(process * processes(config, kind) * 2 ** (attempt - 1))


def minutes(config: Config, kind: str, values: Mapping[str, str], trainings: int = 1, attempt: int = 1) -> int:
    """The time limit of a job, given its wildcards and how many trainings it holds."""
    base = NEEDS[kind].minutes * (6 if kind == "theory_runs" and config.theory.size == "paper" else 1)
    looks = images(config, kind, values) * _passes(config, kind, values, trainings) / processes(config, kind)
    return round((base + looks * _ms(config, kind) / 60_000) * 2 ** (attempt - 1))


def processes(config: Config, kind: str) -> int:
    """How many of them share the work of a job."""
    return config.jobs.processes if kind in ("pretrain", "finetune") else 1


def threads(config: Config, kind: str, values: Mapping[str, str]) -> int:
    return NEEDS[kind].threads if images(config, kind, values) >= MANY else 1


def uses_gpu(config: Config, kind: str) -> bool:
    """Whether a job holds a GPU: with `device: cuda` alone, because `auto` takes what it finds."""
    return config.device == "cuda" and kind in GPU_KINDS


def images(config: Config, kind: str, values: Mapping[str, str]) -> int:
    """How many there are: as counted in the sample table; before it is made, as the configuration lets expect."""
    if kind.startswith("theory"):
        return 0
    names = [values["condition"]] if "condition" in values else map(jobs.condition_name, config.conditions)
    return sum(_images(config, kind, name) for name in names)


def _images(config: Config, kind: str, condition: str) -> int:
    expected = SIZES.get(config.samples.source, UNKNOWN)
    if kind != "samples":  # that one reads all that there are
        with contextlib.suppress(GranularityError, KeyError):
            return sum(_sample_table(config, condition)["images"].values())
        size, held_out = condition.removeprefix("train-"), config.samples.validation
        if size.isdigit():
            return min(int(size) + (held_out if held_out >= 1 else 0), expected)
    return expected


def _classes(config: Config, kind: str, values: Mapping[str, str]) -> int:
    """How many classes the largest rank has that a job probes; 0 before the sample table is made."""
    if kind == "probe":
        with contextlib.suppress(GranularityError, KeyError):
            classes = _sample_table(config, values["condition"])["classes"]
            return max(classes[rank] for rank in config.probe.ranks or config.samples.ranks)
    return 0


def _sample_table(config: Config, condition: str) -> dict:
    """The summary of a sample table."""
    return Artifact.peek(jobs.PATHS["samples"].format(root=jobs.root(config), condition=condition)).summary


def _pictures(config: Config, kind: str, count: int) -> float:
    """Bytes of the pictures that a job holds."""
    picture = config.pixels.size**2 * (3 if config.pixels.mode == "RGB" else 1)
    match kind:
        case "encoder":
            return 2 * count * _encoder_side(config) ** 2 * 3 * 4
        case "pixels":  # a chunk, and its copy
            return 2 * min(count, 4096) * picture
        case "pretrain" | "finetune" | "probe":  # more than this is left on the disk
            return min(count * picture, 2**31)
    return 0


def _encoder_side(config: Config) -> int:
    try:
        return json.loads(Path(config.encoder.model).read_text())["vision_cfg"]["image_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return 224


def _passes(config: Config, kind: str, values: Mapping[str, str], trainings: int) -> float:
    """How often a job looks at an image."""
    match kind:
        case "encoder":
            return config.encoder.captions.epochs
        case "clusters":  # an image and a centroid
            counts = map(int, values["clustering"].split("-")[1:])
            return config.cluster.restarts * config.cluster.iterations * sum(counts)
        case "pretrain":
            return trainings * config.pretrain.epochs
        case "finetune":
            return trainings * config.finetune.epochs
        case "probe":  # the embedding, too
            ranks = config.probe.ranks or config.samples.ranks
            return (trainings + 1) * len(ranks) * max(1.0, _classes(config, kind, values) / MANY_CLASSES)
    return 1


def _ms(config: Config, kind: str) -> float:
    """Of an image and pass."""
    ms = NEEDS[kind].ms
    if uses_gpu(config, kind):
        return ms / 100 if kind == "clusters" else ms
    if _published(config, kind):
        return PUBLISHED_MS
    return ms * max(1, config.pixels.size / CPU_SIDE) ** 2 if kind in ("pretrain", "finetune") else ms


def _published(config: Config, kind: str) -> bool:
    return kind == "embedding" and not config.encoder.trained_here
