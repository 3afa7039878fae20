"""The configurations here: what each judges, what it would cost, and which inputs it lacks."""

import contextlib
import fnmatch
import functools
import io
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pandas as pd

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.stage import Job
from granularity.claims import claim
from granularity.config import files
from granularity.config.cells import cells
from granularity.plan import commands
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.verdicts import papers_of
from granularity.store import place
from granularity.store.artifact import Artifact, by_stage

DEFAULT, OTHERS = files.DEFAULT, ("config/examples/*.yaml", "studies/*/study.yaml")
TEXTS = ("setting", "phase", "event", "outcome")  # text columns of a world's runs
COUNTED = ("measured", "sd", "minimum", "maximum", "interval_low", "interval_high", "p")
WHERE = re.compile(r"^no [^:]*(?:networks|data set)(?:, \w+)?: ")  # prefix of a quantity for which there are no results
Rows = list[dict[str, str]]


class Cost(NamedTuple):
    """Hours on CPUs and on GPUs: `measured`, or else `planned` from the time limits of the jobs."""

    cpu_hours: float
    gpu_hours: float
    how: str

    def __str__(self) -> str:
        parts = [(one, unit) for one, unit in ((self.gpu_hours, "GPU"), (self.cpu_hours, "CPU")) if one]
        words = " and ".join(f"{one:{',.0f' if one >= 10 else '.2g'}} {unit} h" for one, unit in parts) or "nothing"
        return f"{words}, measured" if self.how == "measured" else f"planned: at most {words}"


@dataclass(frozen=True)
class Experiment:
    """A configuration. `name`: its folder of results; `file`: the configuration file; `studies`: each with its rows
    before any run; `missing`: messages about inputs that are not there; `planned`: the planned cost; `data`: patterns
    of the paper's architecture and images, if it is a paper's experiment.
    """

    name: str
    file: Path
    studies: dict[str, Rows] = field(repr=False)
    missing: tuple[str, ...]
    planned: Cost
    data: tuple[str, ...] = ()

    def repeats(self, images: str, architectures: Iterable[str]) -> bool:
        """Return whether results of these (see :func:`data_of`) are of the paper's images and architecture."""
        words = (*architectures, *images.split("; "))
        return all(any(fnmatch.fnmatchcase(one, like) for like in self.data) for one in words)

    @property
    def key(self) -> str:
        """The file's name without suffix; for a study, the name of its folder."""
        return self.file.parent.name if self.file.stem == "study" else self.file.stem

    @property
    def options(self) -> str:
        """Snakemake's options for this configuration, with a leading blank."""
        return "" if self.file == DEFAULT else f" --configfile {self.file}"


def here(wrong: list[str]) -> list[Experiment]:
    """Return the configurations in config/config.yaml, config/examples/ and studies/; `wrong` collects errors."""
    found = []
    for file in (file for one in (str(DEFAULT), *OTHERS) for file in sorted(Path().glob(one))):
        with noted(wrong):
            found.append(_experiment(file))
    extensions.load([])
    return found


def _experiment(file: Path) -> Experiment:
    missing: tuple[str, ...] = ()
    try:
        config = files.load(file)
    except GranularityError as error:
        config = files.load(file, inputs=False)
        missing = tuple(line.removeprefix(f"{file}: ") for line in error.args)
    costs = [_planned(plan, _without_theory(plan)) for plan in (Plan(cell.config) for cell in cells(config))]
    cost = Cost(sum(one.cpu_hours for one in costs), sum(one.gpu_hours for one in costs), "planned")
    studies = {name: untested(extensions.find("study", name)) for name in config.studies}
    return Experiment(config.name, file, studies, missing, cost)


def data_of(artifact: Artifact) -> tuple[str, tuple[str, ...]]:
    """Return the images that a result was made from, in words, and the architectures of its networks."""
    images, architectures = {}, {}
    for source in artifact.lineage().values():
        if source.kind == "samples":
            target, train = source.facts["target"], f"{source.summary['images']['train']:,} training images"
            classes = f"{source.summary['classes'][target]:,} classes"
            images[f"{source.facts['source']}: {train}, target “{target}” of {classes}"] = None
        elif source.kind == "pretrain":
            architectures[source.facts["model"]["name"]] = None
    return "; ".join(images), tuple(architectures)


def _without_theory(plan: Plan) -> Iterator[Job]:
    jobs = (job for stage in STAGES if stage != "theory" for job in plan.jobs(stage))
    return (job for job in jobs if job.values.get("name") != "theory")


def worlds(judged: Container[str], wrong: list[str]) -> dict[str, tuple[Rows, Cost]]:
    """Return every world except those `judged`: its rows before any run, and its planned cost."""
    plan, found = Plan(files.checked({})), {}
    for world in (name for name in extensions.names("world") if name not in judged):  # importing one takes seconds
        with noted(wrong):
            found[world] = untested(extensions.find("world", world)), _planned(plan, plan.jobs("theory", world=world))
    return found


def _planned(plan: Plan, jobs: Iterable[Job]) -> Cost:
    """Return what the jobs request from a scheduler, as if nothing had been made yet."""
    hours = {True: 0.0, False: 0.0}
    for job in jobs:
        hours[commands.uses_gpu(plan, job)] += commands.minutes(plan, job) / 60
    return Cost(hours[False], hours[True], "planned")


def measured(*folders: Path) -> Cost | None:
    """Return the cost of the results below some folders, from their manifests; None if there are none."""
    found = {}
    for name in (name for folder in folders if folder.is_dir() for name in place.find(folder)):
        with contextlib.suppress(GranularityError):  # damaged: `granularity verify` names it
            artifact = Artifact.peek(name)
            found[artifact.digest] = artifact
    rows = by_stage(found.values())
    hours = (sum(row.get(f"{kind}_seconds", 0) for row in rows) / 3600 for kind in ("cpu", "gpu"))
    return Cost(*hours, "measured") if rows else None


def paper_of(study: str) -> str:
    """Return the first paper whose rows a study is judged against; empty if there is none or the study is unknown."""
    with contextlib.suppress(GranularityError):
        return next(iter(papers_of(study)), "")
    return ""


@contextlib.contextmanager
def noted(wrong: list[str]) -> Iterator[None]:
    """Add the lines of a GranularityError to `wrong`, and continue."""
    try:
        yield
    except GranularityError as error:
        wrong += error.args


# ---------------------------------------------------------------- claims before any run


@functools.cache
def untested(module: ModuleType) -> Rows:
    """Return the rows of `checks.csv` before any run, as text: the claims are judged on empty tables."""
    columns = getattr(module, "COLUMNS", ())
    try:
        if hasattr(module, "READS"):
            empty = pd.DataFrame(columns=columns, dtype=object)
            table = claim.table(module.judge(dict.fromkeys(("samples", *module.READS), empty)))
        else:
            numbers = ("seed", "step", *module.Settings.model_fields, *columns)
            types = dict.fromkeys(TEXTS, object) | dict.fromkeys(numbers, float)
            table = claim.table(module.judge(pd.DataFrame(columns=list(types)).astype(types)))
    except (LookupError, ValueError, TypeError, AttributeError) as error:  # from a user's own module
        raise GranularityError(f"{module.__name__}: its claims cannot be listed before it has run") from error
    if table.empty:
        return []
    text = io.StringIO(table.to_csv(index=False, float_format="%.6g"))
    rows = pd.read_csv(text, keep_default_na=False, dtype=str).to_dict("records")
    blank = dict.fromkeys(COUNTED, "") | {"seeds": "0", "why": claim.NOT_RUN}  # statistics of no values
    return [row | blank | {"quantity": WHERE.sub("", row["quantity"])} for row in rows]
