"""Options of stage `pixels`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from granularity.base.section import Section


class Pixels(Section):
    size: Annotated[int, Field(ge=1, le=4096)] = Field(
        8, description="Side of the square images kept for training, in pixels."
    )
    mode: Literal["L", "RGB"] = Field("L", description="Colour channels: L (grey, 1) or RGB (3).")

    @property
    def bytes(self) -> int:
        """Size of one image."""
        return self.size**2 * len(self.mode)
