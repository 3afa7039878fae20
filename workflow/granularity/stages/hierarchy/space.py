"""The label spaces that a configuration asks for, as their families name and define them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from granularity.base import extensions
from granularity.base.errors import GranularityError

TARGET = "target"  # the retraining baseline: the same two stages, both on the target labels


@dataclass(frozen=True)
class Space:
    """A label space to be made: `name` is unique within a condition, `params` its definition within its family."""

    name: str
    family: str
    params: dict[str, Any] = field(default_factory=dict)


def spaces(wanted: Any, samples: Any) -> list[Space]:
    """The label spaces of a configuration: the target first, then each family's, in the order of families.

    Args:
        wanted: the section `label_spaces`, with an attribute per family.
        samples: the section `samples`.

    Raises:
        GranularityError: two have one name; a family speaks for another, or of a series that it does not describe.
    """
    found = {TARGET: Space(TARGET, "manual", {"rank": samples.target})}
    for family in extensions.names("family"):
        module = extensions.find("family", family)
        for space in module.spaces(getattr(wanted, family), samples):
            if space.family != family:
                raise GranularityError(f"label_spaces.{family}: says that {space.name} is of family '{space.family}'")
            if space.name in found:
                other = found[space.name].family
                raise GranularityError(f"label_spaces.{family}: '{space.name}' is the name of one of {other} already")
            if hasattr(module, "series") and (series := module.series(space.params)) not in module.WORDS:
                raise GranularityError(f"label_spaces.{family}: {space.name} is of a series '{series}' without WORDS")
            found[space.name] = space
    return list(found.values())


def clusterings(spaces: Iterable[Space]) -> list[str]:
    """The clusterings that label spaces are read from, such as `whole-30` or `superclass-3`."""
    return list(dict.fromkeys(name for space in spaces for name in space.params.get("clusterings", ())))
