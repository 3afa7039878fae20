"""The configurations that are here: what each judges, what it would cost, and which inputs it lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.stage import Job
from granularity.config import files
from granularity.look.papers import blank
from granularity.plan import resources
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.verdicts.options import papers_of
from granularity.store import artifacts
from granularity.store.artifacts import Artifact
from granularity.store.cost import by_stage

DEFAULT, OTHERS = Path("config/config.yaml"), Path("config/experiments")
MEASURED, PLANNED = "measured", "planned"
HOUR = 3600


@dataclass(frozen=True)
class Cost:
    """Hours on CPUs and on GPUs, and whether they were `measured` or are `planned`: the time limits of the jobs."""

    cpu_hours: float
    gpu_hours: float
    how: str

    def __str__(self) -> str:
        parts = ((self.gpu_hours, "GPU"), (self.cpu_hours, "CPU"))
        words = " and ".join(f"{_number(hours)} {unit} h" for hours, unit in parts if hours) or "nothing"
        return f"{words}, measured" if self.how == MEASURED else f"planned: at most {words}"


def _number(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


@dataclass(frozen=True)
class Study:
    """A study or a world: the `paper` whose claims it judges (empty: none), and its `rows` before any run."""

    paper: str
    rows: list[dict[str, str]]


@dataclass(frozen=True)
class Experiment:
    """A configuration.

    Attributes:
        name: of its folder of results.
        file: what holds it, or what differs from the default.
        studies: those that it names, by name.
        missing: what is said of inputs that it names and that are not there.
        planned: what it would cost.
    """

    name: str
    file: Path
    studies: dict[str, Study] = field(repr=False)
    missing: tuple[str, ...]
    planned: Cost

    @property
    def options(self) -> str:
        """What tells Snakemake of it, with a blank in front."""
        return "" if self.file == DEFAULT else f" --configfile {self.file}"


def here(wrong: list[str]) -> list[Experiment]:
    """The default configuration and those of config/experiments/; what cannot be read is added to `wrong`."""
    found = []
    for file in (DEFAULT, *sorted(OTHERS.glob("*.yaml"))):
        with told(wrong):
            found.append(_experiment(file))
    extensions.load([])
    return found


def _experiment(file: Path) -> Experiment:
    given, missing = dict.fromkeys((DEFAULT, file)), ()
    try:
        config = files.load(*given)
    except GranularityError as error:
        config = files.load(*given, inputs=False)
        missing = tuple(line.removeprefix(f"{file}: ") for line in error.args)
    plan = Plan(config)
    jobs = (job for stage in STAGES if stage != "theory" for job in plan.jobs(stage))
    own = (job for job in jobs if job.values.get("name") != "theory")
    studies = {name: Study(paper_of(name), blank.of_study(name)) for name in config.studies}
    return Experiment(config.name, file, studies, missing, _planned(plan, own))


def worlds(judged: Container[str], wrong: list[str]) -> dict[str, tuple[Study, Cost]]:
    """Every world of the theory but some, with what it would cost."""
    plan, found = Plan(files.load(DEFAULT)), {}
    for world in (name for name in extensions.names("world") if name not in judged):  # to import one takes seconds
        with told(wrong):
            cost = _planned(plan, plan.jobs("theory", world=world))
            found[world] = Study(paper_of(world), blank.of_world(world)), cost
    return found


def _planned(plan: Plan, jobs: Iterable[Job]) -> Cost:
    """What the jobs ask a scheduler for, as if nothing had been made yet."""
    hours = {True: 0.0, False: 0.0}
    for job in jobs:
        hours[resources.uses_gpu(plan, job)] += resources.minutes(plan, job) / 60
    return Cost(hours[False], hours[True], PLANNED)


def measured(*folders: Path) -> Cost | None:
    """What the results below some folders cost, from their manifests; None where there is none."""
    found = []
    for folder in filter(Path.is_dir, folders):
        for name in artifacts.find(folder):
            with contextlib.suppress(GranularityError):  # damaged: `granularity verify` names it
                found.append(Artifact.peek(name))
    rows = by_stage({one.digest: one for one in found}.values())
    if not rows:
        return None
    seconds = (sum(row.get(key, 0) for row in rows) for key in ("cpu_seconds", "gpu_seconds"))
    return Cost(*(one / HOUR for one in seconds), MEASURED)


def paper_of(study: str) -> str:
    """The first paper whose rows a study is held against; empty where it is none's, or not known here."""
    with contextlib.suppress(GranularityError):
        return next(iter(papers_of(study)), "")
    return ""


@contextlib.contextmanager
def told(wrong: list[str]) -> Iterator[None]:
    """Add the lines of an error to what is wrong, and go on."""
    try:
        yield
    except GranularityError as error:
        wrong += error.args
