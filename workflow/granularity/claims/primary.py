"""Primary comparisons: declared before a run and corrected among themselves; the report's answer rests on them."""

import math
from statistics import NormalDist
from typing import Annotated

from pydantic import Field, model_validator

from granularity.base.section import Section

POWER, LEVEL = 0.9, 0.95
Points = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Primary(Section):
    """One comparison in a condition, for the first network and the first transfer that finetunes it."""

    arm: str = Field(description="A label space.")
    against: str = Field("target", description="The label space that it is compared with.")
    smallest: Points | None = Field(None, description="The smallest difference to detect, in points of error.")
    spread: Points | None = Field(
        None, description="Standard deviation of that difference between backbones, in points, from a pilot run."
    )

    @model_validator(mode="after")
    def _reckonable(self):
        if (self.smallest is None) != (self.spread is None):
            raise ValueError("smallest: determines the number of backbones together with spread; set both or neither")
        return self

    def backbones(self, comparisons: int, each: int = 1) -> int | None:
        """Return how many backbones, or means of `each`, detect `smallest` with 90 % power (Guenther 1981), corrected.

        None if no `smallest` is declared. Means of draws also vary by their images: then it is the least number.
        """
        if self.smallest is None or self.spread is None:
            return None
        level = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / comparisons)
        wanted = (level + NormalDist().inv_cdf(POWER)) * self.spread / self.smallest
        return math.ceil(wanted**2 / each + level**2 / 2)
