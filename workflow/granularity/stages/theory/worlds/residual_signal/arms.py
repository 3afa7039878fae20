"""The arms of four worlds, each trained as in its world; beside what it learnt, the signal of its label space."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, ValidationError, model_validator

from granularity.claims import preregistered
from granularity.stages.theory import engine
from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds import (
    feature_contamination,
    feature_emergence,
    label_granularity,
    mask_reconstruction,
)
from granularity.stages.theory.worlds.residual_signal import law
from granularity.stages.theory.worlds.residual_signal.spaces import WORLDS

NAME = "residual_signal"
MODULES = {
    module.__name__.rpartition(".")[2]: module
    for module in (feature_emergence, label_granularity, feature_contamination, mask_reconstruction)
}


class Settings(engine.Settings):
    """One arm of one world."""

    WORLD: ClassVar[str] = NAME

    world: Literal["feature_emergence", "label_granularity", "feature_contamination", "mask_reconstruction"] = Field(
        "feature_emergence", description="The world whose arm it is."
    )
    setting: dict[str, Any] = Field({}, description="Its settings there, where they are not that world's defaults.")

    @model_validator(mode="after")
    def _of_its_world(self):
        try:
            _ = self.arm
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or self.world
            raise ValueError(f"setting: {self.world}: {where}: {first['msg']}") from None
        return self

    @cached_property
    def arm(self) -> engine.Settings:
        """The settings of its world; streams of random numbers are that world's."""
        return MODULES[self.world].Settings(**self.setting, name=self.name, seeds=self.seeds, base=self.base)

    def shape(self) -> tuple:
        return (self.world, *self.arm.shape())

    def work(self) -> float:
        return self.arm.work()


def settings(size: str) -> list[Settings]:
    """The arms of a size, as the preregistration has them; `world: words` is the name of an arm."""
    registered = preregistered.read(NAME)["arms"]
    return [
        Settings(name=f"{world}: {words}", world=world, setting=part["common"] | own, seeds=registered["seeds"][size])
        for world, part in registered["worlds"].items()
        for words, own in part["spaces"].items()
    ]


SIZES = {size: settings(size) for size in preregistered.read(NAME)["arms"]["seeds"]}


def simulate(runs: Sequence[Trial], device: torch.device) -> list[dict[str, Any]]:
    """Train a group of runs of one world; one row each: its signal, its number of labels, what it learnt."""
    world = runs[0].settings.world
    space, phase, learnt, _ = WORLDS[world]
    inner = [Trial(run.settings.arm, run.seed) for run in runs]
    ends = {
        (row["setting"], row["seed"]): row
        for row in MODULES[world].simulate(inner, device)
        if row["phase"] == phase and {"end", "diverged"} & set(row["event"].split())
    }
    rows = []
    for run, own in zip(runs, inner, strict=True):
        end, known = ends[own.settings.name, own.seed], space(own)
        found = {"signal": law.staircase(known), "labels": known.chance.shape[1]}
        if end["event"] == "diverged":
            rows.append(engine.row(run, found, end["step"], event="diverged") | {"outcome": end["outcome"]})
        else:
            rows.append(engine.row(run, found | {"learnt": learnt(end)}, end["step"]))
    return rows
