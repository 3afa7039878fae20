"""Options of stage `theory`."""

from typing import Literal

from pydantic import Field, model_validator

from granularity.base.section import Few, Name, Natural, Section


class Options(Section):
    """One part of the trainings of a world."""

    world: Name = Field(description="Name of the world: see docs/theory.md.")
    size: Name = Field("quick", description="quick, paper (the paper's own dimensions), or grid.")
    part: Natural = Field(0, description="Number of the part of its trainings, from 0.")
    parts: Few = Field(1, description="Number of parts of the world's trainings; does not change results.")

    @model_validator(mode="after")
    def _part_of_parts(self):
        if self.part >= self.parts:
            raise ValueError(f"part: there is no part {self.part} of {self.parts}; they are counted from 0")
        return self


class Theory(Section):
    """The theory simulations (`snakemake theory`), which need no images."""

    size: Literal["quick", "paper", "grid"] = Field(
        "quick",
        description="quick: minutes on a laptop; paper: the papers' own dimensions; "
        "grid: the largest scales of label_granularity, hours.",
    )
