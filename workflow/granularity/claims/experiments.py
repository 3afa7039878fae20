"""Which experiment reproduces which published rows: reads `claims/numbers/experiments.yaml`."""

from collections.abc import Mapping

from pydantic import Field, ValidationError

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.section import Name, Section
from granularity.claims import published

FILE = published.FOLDER / "experiments.yaml"


class Entry(Section):
    """Some rows of a paper, and the study and experiments that concern them."""

    tables: list[str] = Field([], description="Tables of the rows; empty: any, or none.")
    settings: list[str] = Field([], description="Prefixes of the rows' settings; empty: any.")
    study: str = Field(
        "", description="Judge of the claims: a study, a world, or an entry of docs/results/claims.yaml."
    )
    experiments: list[Name] = Field(
        [], description="Experiments in config/examples/ or studies/ that give the numbers."
    )
    why: str = Field("", description="Why there is none, or a note.")

    def fits(self, row: Mapping[str, str]) -> bool:
        """Return whether a row of :func:`granularity.claims.published.read` belongs to this entry."""
        return _begins(row, self.settings) and (not self.tables or row["table"] in self.tables)


class Source(Section):
    """Where to find our number for some rows. The first source to set a key wins; without `arm` there is none."""

    settings: list[str] = Field([], description="Prefixes of the rows' settings; empty: any.")
    arms: list[str] = Field([], description="The rows' arms; empty: any.")
    metrics: list[str] = Field([], description="The rows' metrics; empty: any.")
    x: list[float] = Field([], description="The rows' x; empty: any, or none.")

    arm: list[str] = Field([], description="Arms of the world; those that were run are shown.")
    phase: list[str] = Field(["train"], description="Phases of these arms.")
    best: str = Field(
        "", description="Measure that selects, by seed, the phase with its highest value among phases with this prefix."
    )
    step: int | None = Field(None, description="The step (null: the end).")
    measure: list[str] = Field([], description="Columns of the world's runs.")
    per: str = Field("", description="A parameter of the arm; measures are divided by it.")
    near: str = Field("", description="An arm of the world with the same question at another size.")
    space: str = Field("", description="The label space, if family and G do not determine it; {x} is the row's x.")
    transfers: list[Name] = Field(["target"], description="The ways of finetuning; of several, the lowest error.")
    claims: list[str] = Field([], description="Claims of the study that are about the rows; empty: all of a study's.")
    why: str = Field("", description="Why we have no number, or a note.")

    def fits(self, row: Mapping[str, str]) -> bool:
        """Return whether this source applies to a row of :func:`granularity.claims.published.read`."""
        named = all(not some or row[key] in some for key, some in (("arm", self.arms), ("metric", self.metrics)))
        return named and _begins(row, self.settings) and (not self.x or (row["x"] and float(row["x"]) in self.x))


FILTERS = ("settings", "arms", "metrics", "x")


class Paper(Section):
    """A paper: authors, year, title, and its rows. Each row belongs to the first entry that it fits."""

    title: str
    rows: list[Entry]
    data: dict[Name, list[str]] = Field(
        {},
        description="By experiment: the architecture, and the images as papers.csv describes them, whose results count "
        "as the paper's (* fits anything).",
    )
    ours: list[Source] = Field([], description="Where to find our numbers for its rows.")

    def entry_of(self, row: Mapping[str, str]) -> int | None:
        """Return the index of the entry that a row belongs to, or None."""
        return next((place for place, entry in enumerate(self.rows) if entry.fits(row)), None)

    def source_of(self, row: Mapping[str, str]) -> Source:
        """Return where to find our number for a row, merged from all sources that apply; earlier sources win."""
        said: dict[str, object] = {}
        for source in self.ours:
            if source.fits(row):
                own = {name: getattr(source, name) for name in source.model_fields_set if name not in FILTERS}
                said = own | said
        return Source(**said)


def _begins(row: Mapping[str, str], settings: list[str]) -> bool:
    return not settings or row["setting"].startswith(tuple(settings))


def read() -> dict[str, Paper]:
    """Return every paper by the name of its CSV file, in file order."""
    values = strict_yaml.read(FILE)
    if not isinstance(values, dict) or set(values) != set(published.papers()):
        raise GranularityError(f"{FILE}: must have an entry for each of {', '.join(published.papers())}")
    try:
        return {name: Paper.model_validate(value) for name, value in values.items()}
    except ValidationError as error:
        places = (f"{FILE}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise GranularityError(*places) from None
