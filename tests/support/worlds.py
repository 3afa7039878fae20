"""The two stages of the theory, called as their commands call them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from granularity.stages import theory, verdicts
from granularity.stages.theory import stage as training
from granularity.stages.verdicts import stage as judging
from granularity.store.task import Task


def train(world: str, folder: Path, size: str = "tiny", part: int = 0, parts: int = 1) -> Path:
    """One part of a world's trainings, on the CPU."""
    options = theory.STAGE.model(world=world, size=size, part=part, parts=parts)
    training.run(Task(theory.STAGE, folder, options, device="cpu"))
    return folder


def judge(world: str, parts: list[Path], folder: Path) -> Path:
    """The verdicts on a world, from all parts of its trainings."""
    options = verdicts.STAGE.model(study=world)
    judging.run(Task(verdicts.STAGE, folder, options, {"theory": tuple(parts)}))
    return folder


def assert_rows_name_their_arms(checks: pd.DataFrame, world: str) -> None:
    """Every row that has values says which arms they are of, and the command that trains these alone."""
    measured = checks[checks["measured"].notna()]
    assert len(measured) and measured["arms"].notna().all()
    assert measured["command"].str.contains(f"granularity simulate {world} --size tiny --arm ").all()
