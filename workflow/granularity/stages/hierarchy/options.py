"""Options of stage `hierarchy`; and the section `label_spaces`, made from the families that there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, create_model, model_validator

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import WORD, Section
from granularity.stages.hierarchy.space import Space
from granularity.store.generations import folder_of

NAME = TypeAdapter(Annotated[str, Field(pattern=WORD, strict=True)])
LONGEST = 200  # file systems take 255 bytes: runs and their files add up to 55 to a name
ALLOWED = (
    "a name has letters, digits, '_', '.' and '-', begins with a letter or a digit, is not manifest.json, does not "
    f"end in .stamp, and is no longer than {LONGEST} bytes"
)
COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
MARKERS = set("o^v<>sPpDdXx*hH+|_1234.8")  # of matplotlib, which is slow to import


class LabelSpace(Section):
    """One label space: a :class:`granularity.stages.hierarchy.space.Space`."""

    space: str = Field(description="Name of the label space, unique within a condition.")
    family: str = Field(description="Name of its family: a file in stages/hierarchy/families/, or one of your own.")
    params: dict[str, Any] = Field({}, description="What its family makes it from.")


def once_each(key: str, values: Sequence[Any]) -> None:
    """For validators: raise ValueError where a value is listed twice."""
    if len(set(values)) < len(values):
        raise ValueError(f"{key}: one is given twice: {values}")


def fewer_than_images(key: str, values: Sequence[int], config: Any) -> Iterator[str]:
    """A complaint for every number that is more than the training images of a condition."""
    for i, condition in enumerate(config.conditions):
        size = condition.train_size
        for value in values:
            if size != "all" and value > size:
                yield f"label_spaces.{key}: {value} is more than the {size} training images of conditions[{i}]"


def misnamed(spaces: Iterable[Space]) -> Iterator[str]:
    """A complaint for every label space whose name cannot be that of a folder, a job and a word of a command line."""
    for space in spaces:
        if not _is_name(space.name):
            yield f"label_spaces.{space.family}: {space.name!r:.80} cannot name a label space: {ALLOWED}"


def _is_name(name: Any) -> bool:
    try:
        NAME.validate_python(name)
    except ValidationError:
        return False
    return len(name.encode()) <= LONGEST and folder_of(name).name == name  # or it means another folder


class _Families(Section):
    @model_validator(mode="after")
    def _once_each(self):
        for key, values in self:
            if isinstance(values, list):
                once_each(key, values)
        return self


def label_spaces_section() -> type[Section]:
    """The section `label_spaces`: a key per family, those of the user's own files too.

    Raises:
        GranularityError: a family is not what the docstring of :mod:`granularity.stages.hierarchy.families` asks for.
    """
    found = {name: extensions.find("family", name) for name in extensions.names("family")}
    for name, family in found.items():
        if not _is_name(name):
            raise GranularityError(f"{family.__file__}: {name!r} cannot name a family: {ALLOWED}; rename the file")
        _refuse_incomplete(family)
    return create_model("LabelSpaces", __base__=_Families, **{name: one.OPTION for name, one in found.items()})


def _refuse_incomplete(family: ModuleType) -> None:
    """Raise now where a family would fail later, after all training at the worst."""
    for needed in ("OPTION", "spaces", "labels"):
        if not hasattr(family, needed):
            raise GranularityError(f"{family.__file__}: a family of label spaces needs {needed}")
    several = hasattr(family, "series")
    for what, fits, kind in (("WORDS", _is_text, "a text"), ("STYLE", _is_style, "a colour (#rrggbb) and a marker")):
        value = getattr(family, what, {} if several else None)
        if isinstance(value, dict) != several or not all(map(fits, value.values() if several else [value])):
            wanted = f"{kind} for each series" if several else kind
            raise GranularityError(f"{family.__file__}: {what} = {value!r}: must be {wanted}")


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_style(value: Any) -> bool:
    if value is None:
        return True
    two = isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)
    return two and COLOUR.fullmatch(value[0]) is not None and value[1] in MARKERS
