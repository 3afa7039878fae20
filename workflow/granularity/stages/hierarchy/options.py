"""What the stage takes."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from granularity.base.section import Section


class LabelSpace(Section):
    """One label space: a :class:`granularity.stages.hierarchy.space.Space`."""

    space: str = Field(description="Its name, unique within a condition.")
    family: str = Field(description="Its family: a file in stages/hierarchy/families/, or one of your own.")
    params: dict[str, Any] = Field({}, description="Its definition, as its family takes it.")
