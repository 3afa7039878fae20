"""Options of stage `duplicates`: a section of the configuration."""

from typing import Annotated, Any, Literal

from pydantic import Field

from granularity.base.section import Section, Share


class Duplicates(Section):
    by: Literal["no", "pixels", "embedding", "both"] = Field(
        "no",
        description="Look for near duplicates: `pixels` by a difference hash of the images, `embedding` by cosine "
        "similarity, `both`: pairs that pass both thresholds. See docs/datasets.md.",
    )
    bits: Annotated[int, Field(ge=0, le=32)] = Field(
        16,
        description="With `pixels` or `both`: largest number of the 128 bits in which the hashes of two images differ.",
    )
    cosine: Share = Field(0.95, description="With `embedding` or `both`: smallest cosine similarity of two images.")

    @property
    def embedded(self) -> bool:
        """Whether an embedding is needed."""
        return self.by in ("embedding", "both")

    @property
    def asked(self) -> dict[str, Any]:
        """The options that affect the result."""
        unused = {"pixels": {"cosine"}, "embedding": {"bits"}}
        return self.model_dump(mode="json", exclude=unused.get(self.by, set()))
