"""The series that tables and figures show: a family of label spaces as it says of itself, and what stands beside them.

A family is one series, or several where it says so. A family that is not known here, such as a user's file that this
command was not given, is drawn nevertheless: under its own name, in :data:`DEFAULT`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

from granularity.base import extensions

DEFAULT = ("#6b7785", "H")


class Series(NamedTuple):
    """A series as the report shows it: `style` is a colour and a marker of matplotlib."""

    words: str
    style: tuple[str, str]
    meaningless: bool = False


OTHERS = {
    "one_pass": Series("target labels, one pass", ("#808791", "X")),
    "embedding": Series("the embedding itself", ("#808791", "h")),
}


def series_of(space: Any) -> str:
    """The series that a label space belongs to: its family, or what its family says."""
    family = _families(tuple(extensions.own_files())).get(space.family)
    return family.series(space.params) if hasattr(family, "series") else space.family


def describe(series: str) -> Series:
    """The words and style of a series; an objective without labels is a series of its own."""
    if series in known():
        return known()[series]
    objective = series in extensions.names("objective")
    return Series(f"no labels: {series}" if objective else series, DEFAULT)


def words(series: str) -> str:
    return describe(series).words


def style(series: str) -> tuple[str, str]:
    return describe(series).style


def colour(series: str) -> str:
    return style(series)[0]


def place(series: str) -> int:
    """The place of a series in sorting: as families are listed; unknown ones come last."""
    order = list(known())
    return order.index(series) if series in order else len(order)


def sort(found: Iterable[str]) -> list[str]:
    """Sort series as families are listed, each once."""
    return sorted(dict.fromkeys(found), key=place)


def known() -> dict[str, Series]:
    """The series of all families, then the others."""
    return _known(tuple(extensions.own_files()))


@functools.cache
def _families(own: tuple[str, ...]) -> dict[str, ModuleType]:
    return {name: extensions.find("family", name) for name in extensions.names("family")}


@functools.cache
def _known(own: tuple[str, ...]) -> dict[str, Series]:
    found = {}
    for name, family in _families(own).items():
        words, styles = getattr(family, "WORDS", None), getattr(family, "STYLE", None)
        if not hasattr(family, "series"):
            words, styles = {name: words}, {name: styles}
        for one in dict.fromkeys([*(words or {}), *(styles or {})]):
            said, drawn = (words or {}).get(one) or one, (styles or {}).get(one) or DEFAULT
            found[one] = Series(said, drawn, getattr(family, "MEANINGLESS", False))
    return found | OTHERS
