"""Every published row, with the experiment that is about it and the verdicts that bear on it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from granularity.claims import experiments as about
from granularity.claims import published
from granularity.claims.experiments import Entry
from granularity.look.papers import judged
from granularity.look.papers.experiments import Experiment
from granularity.look.papers.judged import Group

TABLES = re.compile(r"Tables? (\d+(?:(?:, | and )\d+)*)")


@dataclass(frozen=True)
class Part:
    """The rows of an entry of `config/published/experiments.yaml`.

    Attributes:
        paper: the paper's name.
        anchor: where it stands on the page.
        entry: what is here about them.
        rows: as :func:`granularity.claims.published.read` has them, with `line`, theirs in the file.
        experiments: the configurations that would give these numbers.
        groups: what was judged of their study in these experiments; of a world, in the theory.
        elsewhere: what was judged of it on other data.
    """

    paper: str
    anchor: str
    entry: Entry
    rows: list[dict[str, str]]
    experiments: list[Experiment]
    groups: list[Group]
    elsewhere: list[Group]

    @property
    def tables(self) -> list[str]:
        return published.tables(self.rows)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many claims of the study have each verdict, in the experiments of these numbers."""
        return judged.tally(judged.folded(self.groups).values())


def parts(experiments: Iterable[Experiment], groups: Iterable[Group]) -> list[Part]:
    """All published rows, by paper and entry.

    Raises:
        GranularityError: a file of published rows is wrong (see :mod:`granularity.claims.experiments`).
    """
    files = {one.file.stem: one for one in experiments}
    groups = list(groups)
    found = []
    for name, paper in about.read().items():
        rows: dict[int | None, list[dict[str, str]]] = {}
        for line, row in enumerate(published.read(name), 2):
            rows.setdefault(paper.entry_of(row), []).append({**row, "line": str(line)})
        for place, entry in enumerate([*paper.rows, Entry()]):
            own = rows.get(place if place < len(paper.rows) else None)
            if own:
                of = [files[file] for file in entry.experiments if file in files]
                names = {one.name for one in of} or {judged.THEORY}
                judging = [one for one in groups if entry.study and one.study == entry.study]
                exact, other = ([one for one in judging if (one.results in names) == same] for same in (True, False))
                tested = [one for one in other if one.tested]
                found.append(Part(name, f"{name}-{place + 1}", entry, own, of, exact, tested))
    return found


def tables_of(source: str) -> set[str]:
    """The tables that the source of a claim names: T3 and T4 of "Tables 3 and 4"."""
    return {f"T{number}" for found in TABLES.findall(source) for number in re.findall(r"\d+", found)}


def where(group: Group, source: str, parts: Iterable[Part]) -> list[Part]:
    """The parts that a claim is about: of its study and experiment, those with the tables that it names, or all."""
    of_study = [part for part in parts if part.entry.study == group.study]
    own = [part for part in of_study if group in part.groups] or of_study
    named = tables_of(source)
    return [part for part in own if named & set(part.tables)] or own
