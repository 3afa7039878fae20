"""The two stages of the theory, called as their commands call them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from granularity.base import extensions
from granularity.stages import theory, verdicts
from granularity.stages.theory import stage as training
from granularity.stages.verdicts import stage as judging
from granularity.store.task import Task

STUDIES = Path(__file__).parents[2] / "studies"
PARITY = [f"parity/{name}.py" for name in ("staircase", "stairs", "one_bit", "one_bit_longer")]


@contextlib.contextmanager
def studied(*files: str) -> Iterator[None]:
    """Load files of studies, such as "parity/stairs.py", as extensions."""
    extensions.load(STUDIES / file for file in files)
    try:
        yield
    finally:
        extensions.load([])


def train(world: str, folder: Path, size: str = "tiny", part: int = 0, parts: int = 1) -> Path:
    """One part of a world's trainings, on the CPU."""
    options = theory.STAGE.model(world=world, size=size, part=part, parts=parts)
    training.run(Task(theory.STAGE, folder, options, device="cpu"))
    return folder


def generator(seed: int = 0) -> torch.Generator:
    """A stream of random numbers on the CPU."""
    return torch.Generator().manual_seed(seed)


def judge(world: str, parts: list[Path], folder: Path) -> Path:
    """The verdicts on a world, from all parts of its trainings."""
    options = verdicts.STAGE.model(study=world)
    judging.run(Task(verdicts.STAGE, folder, options, {"theory": tuple(parts)}))
    return folder
