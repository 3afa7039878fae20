"""Every published row: the experiment for it, our number or why there is none, and the claims' verdicts."""

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import experiments as about
from granularity.claims import published
from granularity.claims.claim import NOT_TESTED
from granularity.claims.experiments import Entry, Source
from granularity.look.papers import answers
from granularity.look.papers.answers import EntryRows, Tables, World
from granularity.look.papers.claims import THEORY, VERDICTS, Group, folded
from granularity.look.papers.experiments import Experiment, Rows, noted

NO_CLAIM = "no claim"
TABLES = re.compile(r"Tables? (\d+(?:(?:, | and )\d+)*)")


def parts(experiments: Iterable[Experiment], groups: list[Group]) -> list[EntryRows]:
    """Return all published rows, by paper and entry."""
    files, result = {item.key: item for item in experiments}, []
    for name, paper in about.read().items():
        rows: dict[int, Rows] = {}
        entries = [*paper.rows, Entry()]
        for line, row in enumerate(published.read(name), 2):
            place = paper.entry_of(row)
            rows.setdefault(len(paper.rows) if place is None else place, []).append({**row, "line": str(line)})
        for place, part_rows in sorted(rows.items()):
            entry = entries[place]
            found = [files[file] for file in entry.experiments if file in files]
            own_experiments = [replace(item, data=tuple(paper.data.get(item.key, ()))) for item in found]
            judging = [item for item in groups if entry.study and item.study == entry.study]
            groups_here = [item for item in judging if _as_there(item, own_experiments)]
            elsewhere = [item for item in judging if item.tested and not _as_there(item, own_experiments)]
            result.append(
                EntryRows(name, f"{name}-{place + 1}", entry, part_rows, own_experiments, groups_here, elsewhere)
            )
    return result


def _as_there(group: Group, experiments: list[Experiment]) -> bool:
    """Return whether a study is judged as in the paper: in a world, or in the paper's experiment on its own data."""
    if not experiments:
        return group.results == THEORY
    own = [item for item in experiments if item.name == group.results]
    return any(not group.tested or item.repeats(group.data, group.architectures) for item in own)


def where(group: Group, source: str, parts: Iterable[EntryRows]) -> list[EntryRows]:
    """Return the parts that a claim is about: its study and experiment, restricted to tables that it names."""
    of_study = [part for part in parts if part.entry.study == group.study]
    own = [part for part in of_study if group in part.groups] or of_study
    named = tables_of(source)
    return [part for part in own if named & set(part.tables)] or own


def tables_of(source: str) -> set[str]:
    """Return the tables that a claim's source names: T3 and T4 for "Tables 3 and 4"."""
    return {f"T{number}" for found in TABLES.findall(source) for number in re.findall(r"\d+", found)}


def rows(root: Path, parts: list[EntryRows], tables: Tables, wrong: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of `papers_numbers.csv`, by paper and line of the published row, with the `answer` and whether
    its values are `named`. Raises GranularityError: experiments.yaml names an arm, measure or claim that does not
    exist.
    """
    papers, worlds, by_line = about.read(), {}, {}
    for paper in papers:  # the world that judges the paper's rows, with its results if they can be read
        worlds[paper] = None
        for name in dict.fromkeys(part.world for part in parts if part.paper == paper and part.world):
            worlds[paper] = World(name, extensions.find("world", name))
            with noted(wrong):
                worlds[paper] = answers.open_world(root, name)
        answers.check(paper, papers[paper].ours, worlds[paper])
    for part, row in ((entry_rows, row) for entry_rows in parts for row in entry_rows.rows):
        source = papers[part.paper].source_of(row)
        world = worlds[part.paper] if part.world else None
        answer = answers.simulated(world, source) if world else answers.trained(root, row, source, part, tables)
        named = len(answer.values) > 1 or not row["mean"]  # otherwise the value stands for the row itself
        columns = {}
        for column, key in (("ours", "mean"), ("ours_sd", "sd"), ("ours_n", "n")):
            numbers = [(item.name, getattr(item, key)) for item in answer.values]
            cells = [f"{name}: " * named + ("" if math.isnan(item) else f"{item:.6g}") for name, item in numbers]
            columns[column] = "; ".join(cells)
        columns |= {"ours_of": answer.of, "size": answer.size, "unlike_size_paper": answer.unlike}
        why = " ".join(filter(None, ("" if answer.values else part.entry.why, answer.why)))
        columns |= {"other_data": answer.other, "why": why, "verdict": verdict(part, source), "study": part.entry.study}
        columns |= {"experiments": "; ".join(str(item.file) for item in part.experiments)}
        by_line[row["paper"], row["line"]] = row | columns | {"answer": answer, "named": named}
    return by_line


def verdict(part: EntryRows, source: Source) -> str:
    """Return the verdicts on the claims about a row, such as "fails (P2); holds (A5)", or `no claim`."""
    own = folded(part.groups)
    known = {id.partition("-")[0] for id in own}  # A15-paper exists only where it was run; A15 always exists
    unknown = [id for id in source.claims if part.groups and id.partition("-")[0] not in known]
    if unknown:
        study = part.entry.study
        raise GranularityError(f"{about.FILE}: {part.paper}.ours: claims: '{study}' has no claim {', '.join(unknown)}")
    ids = source.claims or ([] if part.world else list(own or folded(part.elsewhere)))
    in_part = {claim.id for group in part.groups for claim in group.claims if claim.in_part}
    words = {id: f"{id} in part" if id in in_part else id for id in ids}
    by = {one: [words[id] for id in ids if own.get(id, NOT_TESTED) == one] for one in VERDICTS}
    return "; ".join(f"{one} ({', '.join(of)})" for one, of in by.items() if of) or NO_CLAIM


def tables(root: Path, parts: Iterable[EntryRows], wrong: list[str]) -> Tables:
    """Return by name the reports for published rows, and of the same studies on other data."""
    found, names = {}, set()
    for part in parts:
        names |= {one.name for one in part.experiments} | {one.results for one in part.elsewhere}
    for name in sorted(names - {THEORY}):
        with noted(wrong):
            found[name] = answers.results(root, name)
    return found
