"""The series in tables and figures: families of label spaces as they describe themselves, or by name."""

import functools
from typing import Any, NamedTuple

from granularity.base import extensions

DEFAULT = ("#6b7785", "H")
OTHERS = {
    "merged": ("class head, all epochs (merged)", ("#1d1f21", "P")),
    "one_pass": ("target labels, one pass", ("#808791", "X")),
    "embedding": ("the embedding itself", ("#808791", "h")),
}


class Series(NamedTuple):
    """A series as the report shows it: `style` is a colour and a matplotlib marker, `place` its rank in sorting."""

    words: str
    style: tuple[str, str]
    meaningless: bool
    place: int

    @property
    def colour(self) -> str:
        return self.style[0]


def series_of(space: Any) -> str:
    """Return the series that a label space belongs to: its family, or what its family says."""
    family = extensions.find("family", space.family) if space.family in extensions.names("family") else None
    return family.series(space.params) if hasattr(family, "series") else space.family


def describe(series: str) -> Series:
    """Return a series as its family describes it; unknown ones come last. An objective without labels is a series."""
    by_name = _known(tuple(extensions.own_files()))
    words = f"no labels: {series}" if series in extensions.names("objective") else series
    return by_name.get(series) or Series(words, DEFAULT, False, len(by_name))


@functools.cache
def _known(own: tuple[str, ...]) -> dict[str, Series]:
    """Return the series of all families, then the others; `own` are the loaded files of the user."""
    by_name: dict[str, Series] = {}
    for name in extensions.names("family"):
        family = extensions.find("family", name)
        words, styles = getattr(family, "WORDS", None) or {}, getattr(family, "STYLE", None) or {}
        if not hasattr(family, "series"):
            words, styles = {name: words or name}, {name: styles or DEFAULT}
        for key in dict.fromkeys([*words, *styles]):
            chance = getattr(family, "MEANINGLESS", False)
            by_name[key] = Series(words.get(key) or key, styles.get(key) or DEFAULT, chance, len(by_name))
    return by_name | {name: Series(*look, False, len(by_name) + i) for i, (name, look) in enumerate(OTHERS.items())}
