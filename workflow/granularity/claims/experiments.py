"""Which experiment here is about which published rows: `config/published/experiments.yaml`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, ValidationError

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.section import Name, Section
from granularity.claims import published

FILE = published.FOLDER / "experiments.yaml"


class Entry(Section):
    """Some rows of a paper, and what here is about them."""

    tables: list[str] = Field([], description="Tables that the rows stand in; empty: any, or none.")
    settings: list[str] = Field([], description="How the rows' settings begin; empty: in any way.")
    study: str = Field("", description="The study or world that judges claims about them.")
    experiments: list[Name] = Field([], description="Files of config/experiments/ that would give these numbers.")
    why: str = Field("", description="Why there is none, or what else to know.")

    def fits(self, row: Mapping[str, str]) -> bool:
        """Whether a row of :func:`granularity.claims.published.read` is one of these."""
        begins = not self.settings or row["setting"].startswith(tuple(self.settings))
        return begins and (not self.tables or row["table"] in self.tables)


class Paper(Section):
    """A paper: authors, year and title, and its rows; each belongs to the first entry that it fits."""

    title: str
    rows: list[Entry]

    def entry_of(self, row: Mapping[str, str]) -> int | None:
        """The place of the entry that a row belongs to; None where it fits none."""
        return next((place for place, entry in enumerate(self.rows) if entry.fits(row)), None)


def read() -> dict[str, Paper]:
    """Every paper by the name of its rows' file, in their order.

    Raises:
        GranularityError: the file cannot be read, holds something else, or lacks a paper.
    """
    values = strict_yaml.read(FILE)
    if not isinstance(values, dict) or set(values) != set(published.papers()):
        raise GranularityError(f"{FILE}: must hold an entry for each of {', '.join(published.papers())}")
    try:
        return {name: Paper.model_validate(value) for name, value in values.items()}
    except ValidationError as error:
        places = (f"{FILE}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise GranularityError(*places) from None
