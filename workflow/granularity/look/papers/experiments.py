"""The configurations that are here: what each judges, what it would cost, and which inputs it lacks."""

import contextlib
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
from granularity.plan import commands
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.verdicts import papers_of
from granularity.store import place
from granularity.store.artifact import Artifact, by_stage

DEFAULT, OTHERS = Path("config/config.yaml"), Path("config/experiments")
MOST = 200  # columns that the claims may ask for
TEXTS = ("setting", "phase", "event", "outcome")  # of a world's runs
COUNTED = ("measured", "sd", "minimum", "maximum", "interval_low", "interval_high", "p")
WHERE = re.compile(r"^no [^:]*(?:networks|data set)(?:, \w+)?: ")  # of a quantity, where nothing lies
Rows = list[dict[str, str]]


class Cost(NamedTuple):
    """Hours on CPUs and on GPUs: `measured`, or else `planned`, the time limits of the jobs."""

    cpu_hours: float
    gpu_hours: float
    how: str

    def __str__(self) -> str:
        parts = [(one, unit) for one, unit in ((self.gpu_hours, "GPU"), (self.cpu_hours, "CPU")) if one]
        words = " and ".join(f"{one:{',.0f' if one >= 10 else '.2g'}} {unit} h" for one, unit in parts) or "nothing"
        return f"{words}, measured" if self.how == "measured" else f"planned: at most {words}"


@dataclass(frozen=True)
class Experiment:
    """A configuration: `name`, of its folder of results; `file`, what holds it, or what differs from the default;
    `studies`, each with its rows before any run; `missing`, what is said of inputs that are not there; `planned` cost.
    """

    name: str
    file: Path
    studies: dict[str, Rows] = field(repr=False)
    missing: tuple[str, ...]
    planned: Cost

    @property
    def options(self) -> str:
        """What tells Snakemake of it, with a blank in front."""
        return "" if self.file == DEFAULT else f" --configfile {' '.join(map(str, files_of(self.file)))}"


def here(wrong: list[str]) -> list[Experiment]:
    """The default configuration and those of config/experiments/; what cannot be read is added to `wrong`."""
    found = []
    for file in (DEFAULT, *sorted(OTHERS.glob("*.yaml"))):
        with noted(wrong):
            found.append(_experiment(file))
    extensions.load([])
    return found


def files_of(file: Path) -> list[Path]:
    """The file, behind the one that it changes if the command in its head names both."""
    base = re.search(rf"^#.* --configfile (\S+) \S*{file.name}", file.read_text(encoding="utf-8"), re.MULTILINE)
    return [*([Path(base[1])] if base else []), file]


def _experiment(file: Path) -> Experiment:
    given, missing = dict.fromkeys((DEFAULT, *files_of(file))), ()
    try:
        config = files.load(*given)
    except GranularityError as error:
        config = files.load(*given, inputs=False)
        missing = tuple(line.removeprefix(f"{file}: ") for line in error.args)
    plan = Plan(config)
    jobs = (job for stage in STAGES if stage != "theory" for job in plan.jobs(stage))
    own = (job for job in jobs if job.values.get("name") != "theory")
    studies = {name: untested(extensions.find("study", name)) for name in config.studies}
    return Experiment(config.name, file, studies, missing, _planned(plan, own))


def worlds(judged: Container[str], wrong: list[str]) -> dict[str, tuple[Rows, Cost]]:
    """Every world of the theory but some: its rows before any run, and what it would cost."""
    plan, found = Plan(files.load(DEFAULT)), {}
    for world in (name for name in extensions.names("world") if name not in judged):  # to import one takes seconds
        with noted(wrong):
            found[world] = untested(extensions.find("world", world)), _planned(plan, plan.jobs("theory", world=world))
    return found


def _planned(plan: Plan, jobs: Iterable[Job]) -> Cost:
    """What the jobs ask a scheduler for, as if nothing had been made yet."""
    hours = {True: 0.0, False: 0.0}
    for job in jobs:
        hours[commands.uses_gpu(plan, job)] += commands.minutes(plan, job) / 60
    return Cost(hours[False], hours[True], "planned")


def measured(*folders: Path) -> Cost | None:
    """What the results below some folders cost, from their manifests; None where there is none."""
    found = {}
    for name in (name for folder in folders if folder.is_dir() for name in place.find(folder)):
        with contextlib.suppress(GranularityError):  # damaged: `granularity verify` names it
            artifact = Artifact.peek(name)
            found[artifact.digest] = artifact
    rows = by_stage(found.values())
    hours = (sum(row.get(f"{kind}_seconds", 0) for row in rows) / 3600 for kind in ("cpu", "gpu"))
    return Cost(*hours, "measured") if rows else None


def paper_of(study: str) -> str:
    """The first paper whose rows a study is held against; empty where it is none's, or not known here."""
    with contextlib.suppress(GranularityError):
        return next(iter(papers_of(study)), "")
    return ""


@contextlib.contextmanager
def noted(wrong: list[str]) -> Iterator[None]:
    """Add the lines of an error to what is wrong, and go on."""
    try:
        yield
    except GranularityError as error:
        wrong += error.args


# ---------------------------------------------------------------- claims before any run


@functools.cache
def untested(module: ModuleType) -> Rows:
    """The rows of `checks.csv` before any run, as text; columns that the claims ask for are added one by one."""
    columns: list[str] = []
    world = not hasattr(module, "READS")
    while len(columns) < MOST:
        named = (*TEXTS, "seed", "step", *columns) if world else columns
        types = {one: float if world and one not in TEXTS else object for one in named}
        empty = pd.DataFrame({one: pd.Series(dtype=of) for one, of in types.items()})
        try:
            table = claim.table(module.judge(empty if world else dict.fromkeys(("samples", *module.READS), empty)))
            if table.empty:
                return []
            text = io.StringIO(table.to_csv(index=False, float_format="%.6g"))
            rows = pd.read_csv(text, keep_default_na=False, dtype=str).to_dict("records")
            blank = dict.fromkeys(COUNTED, "") | {"seeds": "0", "why": claim.NOT_RUN}  # what was counted of nothing
            return [row | blank | {"quantity": WHERE.sub("", row["quantity"])} for row in rows]
        except KeyError as error:
            asked = re.findall(r"'(?:Column not found: )?([^']+)'", str(error))
            if not set(asked) - set(columns):
                break
            columns += [name for name in asked if name not in columns]
        except (IndexError, ValueError, TypeError, AttributeError):  # a user's own
            break
    raise GranularityError(f"{module.__name__}: its claims cannot be listed before it was run")
