"""Options of stage `embed`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from granularity.learning.clip_options import Encoder


class Embed(Encoder):
    processes: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="Processes that share the batches, each on a GPU (or CPU thread) of its own. Changes no byte."
    )
