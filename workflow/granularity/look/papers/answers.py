"""What is here of every published row: our number or why there is none, and the verdict on the claims about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import experiments as about
from granularity.claims.claim import NOT_TESTED
from granularity.claims.experiments import Source
from granularity.look.papers import judged, simulated, trained
from granularity.look.papers.experiments import told
from granularity.look.papers.numbers import Part
from granularity.look.papers.simulated import Simulated
from granularity.look.papers.trained import Tables
from granularity.look.papers.values import Answer

NO_CLAIM = "no claim"
Key = tuple[str, str]  # paper and line


def answers(root: Path, parts: Iterable[Part], tables: Tables, wrong: list[str]) -> dict[Key, tuple[Answer, str]]:
    """The answer to each published row and the verdict on it, by its paper and its line.

    Args:
        root: the folder of all results; need not be there.
        tables: what :func:`.trained.tables` found.
        wrong: takes what cannot be read, a line each.

    Raises:
        GranularityError: `config/published/experiments.yaml` names what its world or study lacks: an arm, a
            measure, a claim.
    """
    parts, papers = list(parts), about.read()
    worlds = {paper: _world(root, [part for part in parts if part.paper == paper], wrong) for paper in papers}
    for paper, world in worlds.items():
        simulated.check(paper, papers[paper].ours, world)
    found = {}
    for part in parts:
        world = worlds[part.paper] if _is_world(part.entry.study) else None
        for row in part.rows:
            source = papers[part.paper].source_of(row)
            if world is not None:
                answer = simulated.answer(world, source)
            else:
                answer = trained.answer(root, row, source, part.experiments, part.elsewhere, tables)
            why = " ".join(filter(None, (part.entry.why if not answer.values else "", answer.why)))
            named = len(answer.values) > 1 or not row["mean"]
            found[row["paper"], row["line"]] = replace(answer, why=why, named=named), _verdict(part, source)
    return found


def _is_world(study: str) -> bool:
    return study in extensions.names("world")


def _world(root: Path, parts: list[Part], wrong: list[str]) -> Simulated | None:
    """The world that judges rows of a paper, with what was run of it and can be read; None where there is none."""
    world = next((part.entry.study for part in parts if _is_world(part.entry.study)), None)
    if world is None:
        return None
    found = simulated.never_run(world)
    with told(wrong):
        found = simulated.open_world(root, world)
    return found


def _verdict(part: Part, source: Source) -> str:
    """The verdicts on the claims about a row, such as "fails (P2); holds (A5)"; `no claim` where there is none."""
    own = judged.folded(part.groups)
    known = {id.partition("-")[0] for id in own}  # A15-paper is there only where it was run, A15 always
    unknown = [id for id in source.claims if part.groups and id.partition("-")[0] not in known]
    if unknown:
        study = part.entry.study
        raise GranularityError(f"{about.FILE}: {part.paper}.ours: claims: '{study}' has no claim {', '.join(unknown)}")
    ids = source.claims or ([] if _is_world(part.entry.study) else list(own))
    if not ids:
        return NO_CLAIM
    by: dict[str, list[str]] = {}
    for id in ids:
        by.setdefault(own.get(id, NOT_TESTED), []).append(id)
    return "; ".join(f"{verdict} ({', '.join(by[verdict])})" for verdict in judged.VERDICTS if verdict in by)
