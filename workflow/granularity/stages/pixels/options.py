"""Options of stage `pixels`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from granularity.base.section import Section


class Pixels(Section):
    later: ClassVar[frozenset[str]] = frozenset({"format", "quality"})

    size: Annotated[int, Field(ge=1, le=4096)] = Field(
        8, description="Side of the square images kept for training (jpeg: their short side), in pixels."
    )
    mode: Literal["L", "RGB"] = Field("L", description="Colour channels: L (grey, 1) or RGB (3).")
    format: Literal["raw", "jpeg"] = Field(
        "raw",
        description="raw: the pixels of the centre square, for data sets that fit in memory. jpeg: the whole image, "
        "its short side `size`, in a fraction of the bytes; training crops it anywhere, and decodes it at every read.",
    )
    quality: Annotated[int, Field(ge=1, le=100)] = Field(95, description="With `format: jpeg`: quality of the JPEGs.")

    @property
    def bytes(self) -> int:
        """Bytes of the centre square of one decoded image."""
        return self.size**2 * len(self.mode)

    @property
    def asked(self) -> dict[str, Any]:
        """The options that affect the result."""
        return self.model_dump(mode="json", exclude=set() if self.format == "jpeg" else {"quality"})
