"""Our numbers of rows that a simulated world has: read from its verdicts' run table, which has every seed."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import experiments as about
from granularity.claims.experiments import Source
from granularity.look.papers.values import Answer, Value, value
from granularity.store.artifacts import Artifact

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

AS_PAPER = "paper"  # the size whose arms are the paper's
UNCOUNTED = {"name", "base", "methods", "picture", "neurons"}  # settings that change no number of a method


@dataclass(frozen=True)
class Simulated:
    """A world: its module, and its run table, size and settings by arm; the table is None where nothing was run."""

    world: str
    module: ModuleType
    table: pd.DataFrame | None
    size: str
    settings: dict[str, dict[str, Any]]

    def sizes_of(self, arm: str) -> list[str]:
        return [size for size, arms in self.module.SIZES.items() if any(one.name == arm for one in arms)]


def never_run(world: str) -> Simulated:
    """A world without anything that was run of it."""
    return Simulated(world, extensions.find("world", world), None, "", {})


def open_world(root: Path, world: str) -> Simulated:
    """A world with what was run of it.

    Raises:
        GranularityError: its verdicts cannot be read.
    """
    folder = root / "theory" / "verdicts" / world
    if not folder.exists():
        return never_run(world)
    artifact = Artifact.open(folder, "verdicts")
    settings = {one["name"]: one for one in artifact.json("settings.json")}
    return Simulated(
        world, extensions.find("world", world), artifact.table("runs.parquet"), artifact.facts["size"], settings
    )


def check(paper: str, sources: Iterable[Source], world: Simulated | None) -> None:
    """That the arms which sources name are those of the world, at any size.

    Raises:
        GranularityError: one is not; or there is no world, and one is named.
    """
    known = [] if world is None else [one.name for arms in world.module.SIZES.values() for one in arms]
    for place, source in enumerate(sources):
        for key, names in (("arm", source.arm), ("near", [source.near] if source.near else [])):
            for name in names:
                if world is None:
                    raise GranularityError(
                        f"{about.FILE}: {paper}.ours.{place}.{key}: no world is about rows of this paper"
                    )
                if name not in known:
                    close = difflib.get_close_matches(name, known, n=1)
                    hint = f"; did you mean '{close[0]}'?" if close else ""
                    where = f"{about.FILE}: {paper}.ours.{place}.{key}"
                    raise GranularityError(f"{where}: the world '{world.world}' has no arm '{name}'{hint}")


def answer(world: Simulated, source: Source) -> Answer:
    """Our number of a row of the world's paper.

    Raises:
        GranularityError: the source names a measure or a parameter that the runs of its arms do not have.
    """
    arms = [arm for arm in source.arm if arm in world.settings] if source.measure else []
    for name in filter(None, (*source.measure, source.per, source.best) if arms else ()):
        if name not in world.table:
            raise GranularityError(f"{about.FILE}: ours: runs of the world '{world.world}' have no column '{name}'")
    values = tuple(_values(world, source, arms)) if world.table is not None else ()
    near = _near(world, source)
    if not values:
        return Answer(other=near, why=source.why or _missing(world, source, arms))
    where = f"theory/verdicts/{world.world}: {', '.join(arms)}: {', '.join(source.phase)}: {', '.join(source.measure)}"
    where += f" / {source.per}" if source.per else ""
    return Answer(values, where, world.size, _unlike(world, arms), near, source.why)


def _values(world: Simulated, source: Source, arms: Sequence[str]) -> Iterable[Value]:
    for arm in arms:
        for phase in source.phase:
            for measure in source.measure:
                found = _seeds(world.table, arm, phase, measure, source)
                parts = ((arm, len(arms)), (phase, len(source.phase)), (measure, len(source.measure)))
                if len(found):
                    yield value(", ".join(word for word, many in parts if many > 1) or measure, found)


def _seeds(table: pd.DataFrame, arm: str, phase: str, measure: str, source: Source) -> np.ndarray:
    """A measure of an arm, a number for each seed."""
    import numpy as np

    from granularity.stages.theory.runs import at

    if source.best:
        rows = table[(table["setting"] == arm) & table["phase"].str.startswith(phase + " ")]
        ends = rows[rows["event"].str.contains("end|diverged")]
        best = [part.loc[part[source.best].fillna(-1).idxmax()] for _, part in ends.groupby("seed")]
        found = np.array([one[measure] for one in best], dtype=float)
    else:
        where = {} if source.step is None else {"step": source.step}
        found = at(table, arm, measure, phase=phase, **where)
    if source.per and len(found):
        found = found / float(table.loc[table["setting"] == arm, source.per].iloc[0])
    return found


def _near(world: Simulated, source: Source) -> str:
    if world.table is None or not source.near or not source.measure:
        return ""
    values = list(_values(world, source, [source.near]))
    if not values:
        return ""
    named = [f"{one.name}: {one.words}" if len(values) > 1 else one.words for one in values]
    seeds = f"{values[0].n} seeds" if values[0].n > 1 else "1 seed"
    return f"{source.near}, size {world.size}: {'; '.join(named)} ({seeds})"


def _missing(world: Simulated, source: Source, arms: Sequence[str]) -> str:
    """Why a row of a world has no number; empty where nothing of the world is about it."""
    if not (source.arm and source.measure):
        return ""
    if world.table is None:
        return f"Not run: snakemake theory_{world.world}"
    arm = (arms or source.arm)[0]
    sizes = [size for size in world.sizes_of(arm) if size != world.size]
    command = shlex.join(["granularity", "simulate", world.world, *("--size", sizes[-1]) * bool(sizes), "--arm", arm])
    if not arms:
        words = f"Not run: the arm “{arm}” is of the size {' and '.join(sizes)} alone"
    else:
        words = f"Not run: “{source.phase[0]}” is no part of the arm “{arm}” at the size {world.size}"
    return f"{words}. {command}" if sizes else words


def _unlike(world: Simulated, arms: Sequence[str]) -> str:
    """In what arms that were run differ from those of the size `paper`; each is named where they do not all alike."""
    if world.size == AS_PAPER:
        return ""
    by: dict[str, list[str]] = {}
    for arm in arms:
        by.setdefault(_difference(world, arm), []).append(arm)
    if len(by) == 1:
        return next(iter(by))
    return "; ".join(f"{', '.join(those)}: {words}" for words, those in by.items() if words)


def _difference(world: Simulated, arm: str) -> str:
    theirs = next((one for one in world.module.SIZES.get(AS_PAPER, ()) if one.name == arm), None)
    if theirs is None:
        return "not in the size paper"
    wanted, own = theirs.model_dump(mode="json", exclude=UNCOUNTED), world.settings[arm]
    return ", ".join(f"{key} {own.get(key)}, not {given}" for key, given in wanted.items() if own.get(key) != given)
