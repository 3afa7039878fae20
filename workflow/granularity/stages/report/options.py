"""Options of stage `report`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from granularity.base.section import Section

MERGED = "_merged"  # suffix of a network that is trained for all epochs, and whose class head is merged


class Report(Section):
    title: str = Field("Does finer-grained pretraining help here?", description="The page's heading.")
    unit: Literal["draw", "backbone"] = Field(
        "draw",
        description="The unit of intervals in a study of several draws: draws, or backbones within a draw.",
    )
    montage_clusters: Annotated[int, Field(ge=0, le=1000)] = Field(
        10, description="Number of clusters shown as rows of images."
    )
    pictures: Annotated[int, Field(ge=0, le=100)] = Field(
        3, description="Number of networks (one per label space) in each picture of a measure; 0: no pictures."
    )


class Page(Section):
    """One report of one configuration."""

    configuration: dict[str, Any] = Field(description="The whole configuration of the results shown.")
    sections: list[str] = Field(description="Names of the sections of its page, in their order.")
    families: list[str] = Field(
        [], description="Names of its families of label spaces, which define how they are drawn."
    )
    pictures: dict[str, str] = Field(
        {}, description="Of each measure with a picture, the kind of the file that draws it: picture or measure."
    )
    theory: dict[str, str] = Field(
        {}, description="Existing verdicts on theory worlds: folder -> the first digits of their digest."
    )
