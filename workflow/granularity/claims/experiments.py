"""Which experiment here is about which published rows: `config/published/experiments.yaml`."""

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
    study: str = Field("", description="What judges claims: a study, a world, an entry of docs/results/claims.yaml.")
    experiments: list[Name] = Field([], description="Files of config/experiments/ that would give these numbers.")
    why: str = Field("", description="Why there is none, or what else to know.")

    def fits(self, row: Mapping[str, str]) -> bool:
        """Whether a row of :func:`granularity.claims.published.read` is one of these."""
        return _begins(row, self.settings) and (not self.tables or row["table"] in self.tables)


class Source(Section):
    """Where our number of some rows stands; the first that says a thing counts, and without `arm` there is none."""

    settings: list[str] = Field([], description="How the rows' settings begin; empty: in any way.")
    arms: list[str] = Field([], description="The rows' arms; empty: any.")
    metrics: list[str] = Field([], description="The rows' metrics; empty: any.")
    x: list[float] = Field([], description="The rows' x; empty: any, or none.")

    arm: list[str] = Field([], description="Arms of the world; shown are those that were run.")
    phase: list[str] = Field(["train"], description="Phases of these arms.")
    best: str = Field("", description="Of the phases that begin so, that in which this measure is highest, by seed.")
    step: int | None = Field(None, description="The step; none: the end.")
    measure: list[str] = Field([], description="Columns of the world's runs.")
    per: str = Field("", description="A parameter of the arm that measures are divided by.")
    near: str = Field("", description="An arm of the world that asks the same at another size.")
    space: str = Field("", description="The label space, where family and G do not tell it; {x} is the row's x.")
    transfers: list[Name] = Field(["target"], description="The ways of finetuning; of several, the lowest error.")
    claims: list[str] = Field([], description="Claims of the study that are about the rows; empty: all of a study's.")
    why: str = Field("", description="Why there is no number of ours, or what else to know.")

    def fits(self, row: Mapping[str, str]) -> bool:
        """Whether it is about a row of :func:`granularity.claims.published.read`."""
        named = all(not some or row[key] in some for key, some in (("arm", self.arms), ("metric", self.metrics)))
        return named and _begins(row, self.settings) and (not self.x or (row["x"] and float(row["x"]) in self.x))


FILTERS = ("settings", "arms", "metrics", "x")


class Paper(Section):
    """A paper: authors, year and title, and its rows; each belongs to the first entry that it fits."""

    title: str
    rows: list[Entry]
    ours: list[Source] = Field([], description="Where our numbers of its rows stand.")

    def entry_of(self, row: Mapping[str, str]) -> int | None:
        """The place of the entry that a row belongs to; None where it fits none."""
        return next((place for place, entry in enumerate(self.rows) if entry.fits(row)), None)

    def source_of(self, row: Mapping[str, str]) -> Source:
        """Where our number of a row stands: everything that the sources which it fits say, the first first."""
        said: dict[str, object] = {}
        for source in self.ours:
            if source.fits(row):
                own = {name: getattr(source, name) for name in source.model_fields_set if name not in FILTERS}
                said = own | said
        return Source(**said)


def _begins(row: Mapping[str, str], settings: list[str]) -> bool:
    return not settings or row["setting"].startswith(tuple(settings))


def read() -> dict[str, Paper]:
    """Every paper by the name of its rows' file, in their order."""
    values = strict_yaml.read(FILE)
    if not isinstance(values, dict) or set(values) != set(published.papers()):
        raise GranularityError(f"{FILE}: must hold an entry for each of {', '.join(published.papers())}")
    try:
        return {name: Paper.model_validate(value) for name, value in values.items()}
    except ValidationError as error:
        places = (f"{FILE}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise GranularityError(*places) from None
