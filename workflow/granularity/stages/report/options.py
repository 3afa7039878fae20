"""Options of stage `report`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from granularity.base.section import Section

MERGED = "_merged"  # ends the name of a network that is trained for all epochs, and whose class head is merged


class Report(Section):
    title: str = Field("Does finer-grained pretraining help here?", description="The page's heading.")
    unit: Literal["draw", "backbone"] = Field(
        "draw",
        description="What intervals of a study of several draws are over: other draws, or backbones within these.",
    )
    montage_clusters: Annotated[int, Field(ge=0, le=1000)] = Field(10, description="Clusters shown as rows of images.")


class Page(Section):
    """One report of one configuration."""

    configuration: dict[str, Any] = Field(description="The whole configuration, whose results are shown.")
    sections: list[str] = Field(description="Names of the sections of its page, in their order.")
    families: list[str] = Field([], description="Names of its families of label spaces, which say how they are drawn.")
    theory: dict[str, str] = Field(
        {}, description="Verdicts on theory worlds that are there: folder -> the first digits of their digest."
    )
