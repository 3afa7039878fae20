"""The base of every section of the configuration, and the types of its values."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from granularity.base import extensions

LARGEST = 2**31 - 1  # labels are int32
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Few = Annotated[int, Field(ge=1, le=1000)]
Natural = Annotated[int, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(gt=0, lt=1)]
# A label space, and a rank that one is called after, names folders, jobs and words of a command line.
WORD = r"^[\p{L}\p{N}][\p{L}\p{M}\p{N}_.-]*$"
Rank = Annotated[str, Field(pattern=WORD, max_length=60)]
# What names folders below results/: networks, transfers, measures.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "tf32", "bfloat16"]


def name_in(room: str) -> Any:
    """The type of a name of what a room has (:mod:`granularity.base.extensions`); editors are offered the names."""

    def check(name: str) -> str:
        known = ", ".join(map(repr, extensions.names(room)))
        if name not in extensions.names(room):
            raise PydanticCustomError(
                "unknown_name",
                "there is no such {room}; there are {known}, and files of your own (extensions)",
                {"room": room, "known": known},
            )
        return name

    def offer(schema: dict[str, Any]) -> None:
        schema["anyOf"] = [{"enum": extensions.names(room)}, {"type": schema.pop("type")}]

    return Annotated[str, AfterValidator(check), Field(json_schema_extra=offer)]


def split_key(message: str) -> tuple[str, str]:
    """The key that the message of a section's own check begins with ("" where there is none), and the rest."""
    key, colon, what = message.partition(": ")
    return (key, what) if colon and re.fullmatch(r"[\w.\[\]-]+", key) else ("", message)


class Section(BaseModel):
    """Base of every section: immutable, and closed to keys it does not know.

    Attributes:
        later: options that came after ids of runs had been given out: at their defaults they are in none.
    """

    later: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @property
    def identity(self) -> dict[str, Any]:
        """What is in ids of runs, as JSON."""
        found = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name not in self.later or value != field.default:
                section = isinstance(value, Section)
                found[name] = value.identity if section else self.model_dump(mode="json", include={name})[name]
        return found

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse truth values elsewhere: Python takes true for 1, and YAML takes yes and on for true."""
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation is not bool:
            raise PydanticCustomError(
                "truth_value", "is no truth value (YAML takes yes, no, on and off for one; write such a word in quotes)"
            )
        if isinstance(value, list):
            for one in value:
                cls._no_truth_value(one, info)
        return value
