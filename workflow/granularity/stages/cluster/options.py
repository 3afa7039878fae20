"""Options of stage `cluster`: the section of a configuration, and what one of its jobs takes."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from granularity.base import extensions
from granularity.base.section import Count, Section


def _engines(schema: dict[str, Any]) -> None:
    """Let an editor offer the names that there are, and accept a user's own."""
    schema["anyOf"] = [{"enum": extensions.names("engine")}, {"type": schema.pop("type")}]


class Cluster(Section):
    later: ClassVar[frozenset[str]] = frozenset({"engine"})

    iterations: Count = Field(25, description="Lloyd iterations at most; stops early once nothing moves.")
    restarts: Count = Field(4, description="Random starts; the one with the lowest objective is kept.")
    engine: str = Field(
        "faiss",
        description="What computes k-means: `faiss`; `torch`, which keeps the embedding on a GPU and takes many groups "
        "at once; or a file of your own.",
        json_schema_extra=_engines,
    )

    @field_validator("engine")
    @classmethod
    def _exists(cls, name: str) -> str:
        known = extensions.names("engine")
        if name not in known:
            raise PydanticCustomError(
                "unknown_engine",
                "there is no such engine; there are {known}, and files of your own (extensions)",
                {"known": ", ".join(map(repr, known))},
            )
        return name


class Clustering(Cluster):
    """One clustering."""

    clustering: str = Field(
        description="`whole-K`; `superclass-C` for C clusters in each superclass, `class-C` in each class of the "
        "finest rank (all its images, where it has fewer than C). With several numbers, such as `whole-10-3`, a tree: "
        "ten clusters (those of `whole-10`), each split into three by k-means on its own images."
    )

    @field_validator("clustering")
    @classmethod
    def _known(cls, name: str) -> str:
        if not re.fullmatch(r"(whole|superclass|class)(-[1-9]\d*)+", name):
            raise ValueError("must be whole-K, superclass-C or class-C, or a tree such as whole-10-3")
        return name
