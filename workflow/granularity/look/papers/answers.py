"""Our number for a published row, or why there is none: from a world's run table, or a report's table of results."""

import difflib
import itertools
import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import experiments as about
from granularity.claims import published
from granularity.claims.experiments import Entry, Source
from granularity.look.papers.claims import Group
from granularity.look.papers.experiments import Experiment, Rows, data_of
from granularity.stages.theory.runs import at
from granularity.stages.verdicts.arms import SAME
from granularity.store.artifact import Artifact

BASELINE = "baseline"
TABLE = "tables/results.parquet"
AS_PAPER = "paper"  # the size whose arms match the paper
UNCOUNTED = {"name", "base", "methods", "picture", "neurons"}  # settings that change no number of a method
Row = Mapping[str, str]


class Report(NamedTuple):
    """The table of results of a report; its images, in words, and the architectures of its networks."""

    table: pd.DataFrame
    images: str
    architectures: tuple[str, ...]


Tables = Mapping[str, Report | None]  # by the name of a folder of results; None: no report


@dataclass(frozen=True)
class EntryRows:
    """The rows of an entry of `claims/numbers/experiments.yaml`.

    `anchor`: its anchor on the page; `rows`: as :func:`granularity.claims.published.read` returns them, plus `line`,
    the line in the file; `experiments`: those that give these numbers; `groups`: verdicts on their study in these
    experiments or in a world; `elsewhere`: verdicts on the study on other data.
    """

    paper: str
    anchor: str
    entry: Entry
    rows: Rows
    experiments: list[Experiment]
    groups: list[Group]
    elsewhere: list[Group]

    def others(self, tables: Tables) -> list[str]:
        """Return the folders of results with the same study, or under an experiment's name, on other data."""
        reports = [(item, report) for item in self.experiments if (report := tables.get(item.name))]
        names = [item.name for item, report in reports if not item.repeats(report.images, report.architectures)]
        return list(dict.fromkeys([*names, *(group.results for group in self.elsewhere)]))

    @property
    def tables(self) -> list[str]:
        return published.tables(self.rows)

    @property
    def world(self) -> str:
        """The world that judges these rows; empty if an image study judges them, or nothing does."""
        return self.entry.study if self.entry.study in extensions.names("world") else ""


class Value(NamedTuple):
    """A mean, its standard deviation (NaN for one run) and number of runs; `name` distinguishes values of one row."""

    name: str
    mean: float
    sd: float
    n: int

    @property
    def words(self) -> str:
        """The text on the page, such as "10.77 ± 0.16"."""
        spread = "" if math.isnan(self.sd) else f" ± {self.sd:.2g}"
        return f"{self.mean:.4g}{spread}".replace("-", "−")


class Answer(NamedTuple):
    """Our answer for a row: `values` in its metric (several if it has several arms or is a statement); `of`, their
    artifact, arm and measure; for a world, the `size` that was run, and how its settings are `unlike` those of the size
    `paper`; `other`, the nearest run at another size or on other data; `why` there are no values.
    """

    values: tuple[Value, ...] = ()
    of: str = ""
    size: str = ""
    unlike: str = ""
    other: str = ""
    why: str = ""


# ---------------------------------------------------------------- simulated worlds


class World(NamedTuple):
    """A world: its module, and its run table, size and settings by arm; the table is None if nothing was run."""

    name: str
    module: ModuleType
    table: pd.DataFrame | None = None
    size: str = ""
    settings: Mapping[str, Mapping[str, Any]] | None = None


def open_world(root: Path, name: str) -> World:
    """Open a world with its results; GranularityError if its verdicts cannot be read."""
    folder, module = root / "theory" / "verdicts" / name, extensions.find("world", name)
    if not folder.exists():
        return World(name, module)
    artifact = Artifact.open(folder, "verdicts")
    settings = {one["name"]: one for one in artifact.json("settings.json")}
    return World(name, module, artifact.table("runs.parquet"), artifact.facts["size"], settings)


def check(paper: str, sources: Iterable[Source], world: World | None) -> None:
    """Raise a GranularityError if a source names an arm that the world has at no size."""
    known = [] if world is None else [one.name for arms in world.module.SIZES.values() for one in arms]
    named = [(place, "arm", name) for place, source in enumerate(sources) for name in source.arm]
    named += [(place, "near", source.near) for place, source in enumerate(sources) if source.near]
    for place, key, name in (one for one in named if one[2] not in known):
        hint = "".join(f"; did you mean '{one}'?" for one in difflib.get_close_matches(name, known, n=1))
        what = f"the world '{world.name}' has no arm '{name}'{hint}" if world else "the paper has no world"
        raise GranularityError(f"{about.FILE}: {paper}.ours.{place}.{key}: {what}")


def simulated(world: World, source: Source) -> Answer:
    """Return our number for a row of the world's paper; error if the runs lack a measure or parameter of the source."""
    if not (source.arm and source.measure):
        return Answer(why=source.why)
    if world.table is None:
        return Answer(why=source.why or f"Not run: snakemake theory_{world.name}")
    arms = [arm for arm in source.arm if arm in world.settings]
    for name in filter(None, (*source.measure, source.per, source.best) if arms else ()):
        if name not in world.table:
            raise GranularityError(f"{about.FILE}: ours: runs of the world '{world.name}' have no column '{name}'")
    near = ""
    if source.near and (close := _values(world, source, [source.near])):
        words = "; ".join(f"{value.name}: {value.words}" if len(close) > 1 else value.words for value in close)
        near = f"{source.near}, size {world.size}: {words} ({close[0].n} seed{'s' if close[0].n > 1 else ''})"
    values = _values(world, source, arms)
    if not values:
        return Answer(other=near, why=source.why or _not_run(world, source, arms))
    origin = f"theory/verdicts/{world.name}: {', '.join(arms)}: {', '.join(source.phase)}: {', '.join(source.measure)}"
    origin += f" / {source.per}" if source.per else ""
    return Answer(tuple(values), origin, world.size, _unlike(world, arms), near, source.why)


def _values(world: World, source: Source, arms: list[str]) -> list[Value]:
    values = []
    for arm, phase, measure in itertools.product(arms, source.phase, source.measure):
        table = world.table[world.table["setting"] == arm]
        if source.best:
            ends = table[table["phase"].str.startswith(phase + " ") & table["event"].str.contains("end|diverged")]
            best = [part.loc[part[source.best].fillna(-1).idxmax()] for _, part in ends.groupby("seed")]
            seeds = np.array([row[measure] for row in best], dtype=float)
        else:
            seeds = at(table, arm, measure, phase=phase, **({} if source.step is None else {"step": source.step}))
        if n := len(seeds):
            seeds = seeds / float(table[source.per].iloc[0]) if source.per else seeds
            several = ((arm, arms), (phase, source.phase), (measure, source.measure))
            name = ", ".join(word for word, choices in several if len(choices) > 1) or measure
            values.append(Value(name, float(seeds.mean()), float(seeds.std(ddof=1)) if n > 1 else math.nan, n))
    return values


def _not_run(world: World, source: Source, arms: list[str]) -> str:
    """Return why a row of a world that was run has no number, and the command that would produce it."""
    arm, others = (arms or source.arm)[0], [size for size in world.module.SIZES if size != world.size]
    sizes = [size for size in others if arm in {one.name for one in world.module.SIZES[size]}]
    words = f"Not run: “{source.phase[0]}” is not a part of the arm “{arm}” at the size {world.size}"
    if not arms:
        words = f"Not run: the arm “{arm}” exists only at the size {' and '.join(sizes)}"
    command = shlex.join(["granularity", "simulate", world.name, *("--size", sizes[-1]) * bool(sizes), "--arm", arm])
    return f"{words}. {command}" if sizes else words


def _unlike(world: World, arms: list[str]) -> str:
    """Return how the arms differ from those of the size `paper`; arms are named unless all differ alike."""
    if world.size == AS_PAPER:
        return ""
    paper = {
        setting.name: setting.model_dump(mode="json", exclude=UNCOUNTED)
        for setting in world.module.SIZES.get(AS_PAPER, ())
    }
    by: dict[str, list[str]] = {}
    for arm in arms:
        settings = world.settings[arm]
        unlike = [
            f"{key} {settings.get(key)}, not {value}"
            for key, value in paper.get(arm, {}).items()
            if settings.get(key) != value
        ]
        by.setdefault(", ".join(unlike) if arm in paper else "not in the size paper", []).append(arm)
    several = [f"{', '.join(names)}: {words}" for words, names in by.items() if words]
    return "; ".join(by if len(by) == 1 else several)


# ---------------------------------------------------------------- networks trained on images


def results(root: Path, name: str) -> Report | None:
    """Return the report below a folder of results; None if there is none, or none with a table of results."""
    if not (root / name / "report").exists():
        return None
    report = Artifact.open(root / name / "report", "report")
    return Report(report.table(TABLE), *data_of(report)) if TABLE in report.manifest["files"] else None


def trained(root: Path, row: Row, source: Source, part: EntryRows, tables: Tables) -> Answer:
    """Return our number for a row, from the experiment for it, together with one on other data."""
    reports = {name: report for name in part.others(tables) if (report := tables.get(name))}
    other = " | ".join(filter(None, (_near(row, source, *item) for item in reports.items())))
    reasons = [source.why] * bool(source.why)
    for item in part.experiments:
        report, command = tables.get(item.name), f"snakemake{item.options}"
        if item.name in reports:
            found = ", ".join((*report.architectures, report.images))
            words = f"{item.name} has results of {found}; the paper's are of {', '.join(item.data)}"
            reasons.append(f"Not run: {words}. Give yours another `name`, then {command}")
        elif report is None and (root / item.name).is_dir():
            reasons.append(f"Results of {item.name} are incomplete, without a report: {command}")
        elif report is None:
            needs = f" It lacks: {'; '.join(item.missing)}." if item.missing else ""
            reasons.append(f"Not run.{needs} {str(item.planned).replace('planned', 'Planned', 1)}. {command}")
        else:
            match = _best(exact(report.table, row, source))
            number = None if match is None else _in_metric(row["metric"], match)
            if number is not None:
                return Answer((number,), f"{item.name}: {_arm(match)}", other=other, why=source.why)
            near = _nearest(report.table, row, source)
            beside = "" if near is None else f"; the nearest is {_arm(near)}"
            reasons.append(f"The report of {item.name} has no {row['arm']} of G = {row['x'] or 'any'}{beside}.")
    return Answer(other=other, why=" ".join(reasons))


def exact(table: pd.DataFrame, row: Row, source: Source, most: float = math.log(SAME)) -> pd.DataFrame:
    """Return the rows for a published row's arm at the nearest G; |log(G / G published)| must be at most `most`."""
    own = table[table["transfer"].isin(source.transfers)]
    if source.space:
        return own[own["space"] == source.space.replace("{x}", row["x"])]
    if row["arm"] == BASELINE:
        return own[own["role"] == BASELINE]
    own = own[(own["series"] == row["arm"].replace(" ", "_")) & (own["role"] != BASELINE)]
    distance = own["granularity"].astype(float).map(lambda g: abs(math.log(g / float(row["x"] or g))))
    return own[(distance == distance.min()) & (distance <= most)]


def _nearest(table: pd.DataFrame, row: Row, source: Source) -> dict | None:
    """Return the arm, or else the arm of the same family with the nearest G, on the largest training set."""
    found = exact(table, row, source)
    anywhere = source.model_copy(update={"space": ""})
    return _best(exact(table, row, anywhere, math.inf) if found.empty and row["arm"] != BASELINE else found)


def _best(found: pd.DataFrame) -> dict | None:
    """Return the way of finetuning with the lowest error, on the largest training set."""
    found = found[(found["train_images"] == found["train_images"].max()) & found["mean"].notna()]
    return None if found.empty else found.sort_values("mean", kind="stable").iloc[0].to_dict()


def _in_metric(metric: str, found: Mapping) -> Value | None:
    """Convert a row of the table of results to a published metric; None unless an error, accuracy or gain."""
    mean, baseline, sd = (float(found[key]) for key in ("mean", "baseline_mean", "std"))
    known = {
        "error_percent": (mean, sd),
        "accuracy_percent": (100 - mean, sd),
        "gain_points": (baseline - mean, math.nan),
        "relative_gain_percent": (100 * (1 - mean / baseline), math.nan) if baseline else None,
    }.get(metric)
    return None if known is None else Value(found["space"], *known, int(found["runs"]))


def _near(row: Row, source: Source, name: str, report: Report) -> str:
    found = _nearest(report.table, row, source)
    number = None if found is None else _in_metric(row["metric"], found)
    if number is None:
        return ""
    base = _in_metric(row["metric"], found | {"mean": found["baseline_mean"], "std": math.nan})
    alone = found["role"] == BASELINE or math.isnan(base.mean) or "gain" in row["metric"]
    beside = "" if alone else f"; its baseline {base.words}"
    size = f"{int(found['train_images']):,} training images"
    data = next((one for one in report.images.split("; ") if size in one), report.images)  # of several, this size
    return f"{name}: {_arm(found)}: {number.words} ({number.n} runs){beside}; of {data}"


def _arm(found: Mapping) -> str:
    """Return a row of the table of results in words: label space, G, and any unusual way of finetuning."""
    g = "" if math.isnan(found["granularity"]) else f", G = {int(found['granularity']):,}"
    return f"{found['space']}{g}" + ("" if found["transfer"] == "target" else f", {found['transfer']}")
