"""What a stage declares about itself, and the jobs that a configuration plans for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from granularity.base import extensions
from granularity.base.section import Section


@dataclass(frozen=True)
class Needs:
    """The resources that the first attempt of a job requests."""

    memory_mb: int  # for any job: Python and its libraries; on a cluster, also two Snakemake processes
    memory_kb: float  # additional memory per image
    minutes: int  # time limit of any job, to which images add
    ms: float = 0.0  # milliseconds per image and pass, on one CPU thread or one GPU
    threads: int = 1  # most CPUs that a job can use
    thread_mb: int = 0  # additional memory per further CPU
    gpu: bool = False  # whether the stage uses a GPU if there is one


@dataclass(frozen=True)
class Job:
    """One planned result of a stage."""

    stage: str
    values: Mapping[str, str] = field(default_factory=dict)  # wildcards of its place: {"condition": "train-300"}
    # The stage's options as JSON values; with inputs and base seed, they determine the result's bytes.
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, tuple[Job, ...]] = field(default_factory=dict, repr=False)  # jobs that it reads, by role
    files: tuple[str, ...] = ()  # user's files that it reads; a change to one recomputes the result
    folders: tuple[str, ...] = ()  # user's folders; adding or removing an image recomputes the result
    passes: float = 1.0  # number of passes over the images of its condition
    memory: Callable[[int], float] = lambda images: 0.0  # bytes on top of the stage's `Needs`, for a number of images
    processes: int = 1  # number of processes that share the work
    readers: int = 0  # additional processes that read images, per process that uses a GPU
    slower: float = 1.0  # time of a pass relative to the stage's `Needs`
    parts: float = math.inf  # parts of its work that can run in parallel, each on one CPU
    longer: float = 1.0  # factor on the time limit of any such job, whatever its images
    at: str | None = None  # folder of a result that another configuration computes; None for this plan's own


class Planned(Protocol):
    """The part of a :class:`granularity.plan.graph.Plan` that stages use to add their jobs."""

    config: Any
    conditions: list[Any]
    networks: list[Any]
    transfers: list[Any]
    cells: list[Any]
    axes: dict[str, dict[str, Any]]

    def jobs(self, stage: str, **values: str) -> Sequence[Job]: ...
    def job(self, stage: str, values: Mapping[str, str]) -> Job: ...
    def folder(self, job: Job) -> Path: ...
    def clusterings(self, condition: Any) -> list[str]: ...
    def embeds(self, condition: Any) -> bool: ...
    def asks(self, condition: Any) -> dict[str, int]: ...
    def classes(self, condition: Any, ranks: Iterable[str]) -> list[int]: ...
    def data_of(self, transfer: Any, condition: Any) -> Any: ...
    def networks_of(self, transfer: Any) -> list[Any]: ...
    def pretrainings(self, network: Any, condition: Any) -> list[Any]: ...
    def backbones(self, network: Any, condition: Any) -> list[Any]: ...
    def finetunings(self, transfer: Any, network: Any, condition: Any) -> list[Any]: ...
    def holding(self, jobs: Sequence[Job], runs: Iterable[Any]) -> list[Job]: ...
    def units(
        self, stage: str, runs: Sequence[Any], network: Any, condition: Any, epochs: int = 1, data: Any = None
    ) -> dict[str, list[Any]]: ...


def jobs_of(plan: Planned, stage: str) -> tuple[Job, ...]:
    """Return all jobs of a stage; for a study, those of its cells."""
    cells = (replace(job, at=str(cell.folder(job))) for cell in plan.cells for job in cell.jobs(stage))
    return tuple(cells) if plan.cells else tuple(plan.jobs(stage))


@dataclass(frozen=True)
class Stage:
    """A stage: its name, and everything that the rest of the program needs to know about it."""

    name: str  # one word: folder, module, rule, target, command, kind of artifact and folder of results
    does: str  # one sentence, for `--help`
    # The pydantic model of `--options`, or a function that returns it (if extensions add keys).
    options: type[Section] | Callable[[], type[Section]]
    place: str  # folder of a result, with wildcards in braces; `{root}` is `results/NAME`
    files: tuple[str, ...]  # files in each result, except its manifest
    plan: Callable[[Planned], Iterable[Job]]  # returns its jobs, given a plan with the jobs of earlier stages
    needs: Needs
    message: str  # Snakemake's message for a job, with wildcards
    # Role -> stage that it reads, in the order of the command's options; `?` marks an optional one, `*` any number.
    inputs: Mapping[str, str] = field(default_factory=dict)
    more_files: tuple[str, ...] = ()  # patterns of files in some results
    seeded: bool = False  # whether it uses the base seed
    # The extensions that options choose, as pairs of a room of `granularity.base.extensions` and a name; their code
    # enters the digest of the result.
    chosen: Callable[[Any], Iterable[tuple[str, str]]] = lambda options: ()
    # External data that the options name: digests by path or name, which change if the same options would give another
    # result. May walk a whole data set, so it is called by the job itself, not in planning.
    outside: Callable[[Any], Mapping[str, str]] = lambda options: {}
    # The options as they enter the result's key, without those that the choices made leave unused.
    asked: Callable[[Any], Mapping[str, Any]] = lambda options: options.model_dump(mode="json")
    gathers: bool = False  # whether its options contain a whole `configuration`, where its command finds its inputs
    volatile: bool = False  # whether it contains measured times, so that it differs each time it is computed
    exact: bool = False  # whether its bytes are the same on any processor, with any number of threads
    shows_names: bool = False  # whether its inputs' names are part of its result, as conditions are of a report
    # Whether it is computed once per study, not in each of its cells; None: in both, and it plans differently.
    of_study: bool | None = False
    # Higher starts first: jobs that use several cores, before others take single ones (2); what only the report waits
    # for (1).
    priority: int = 0

    @property
    def model(self) -> type[Section]:
        """The pydantic model of its options."""
        return self.options if isinstance(self.options, type) else self.options()

    def code(self, options: Section) -> tuple[str, ...]:
        """Return the code that computes a result with these options: dotted modules, and paths of the user's files."""
        return (self.module, *dict.fromkeys(extensions.code(room, name) for room, name in self.chosen(options)))

    @property
    def module(self) -> str:
        """The module that computes it; its `run` takes a :class:`granularity.store.task.Task`."""
        return f"granularity.stages.{self.name}.stage"
