"""What a stage declares of itself, once, and what a configuration plans of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from granularity.base import extensions
from granularity.base.section import Section


@dataclass(frozen=True)
class Needs:
    """What the first attempt of a job asks of a machine."""

    memory_mb: int  # what any job takes: Python with its libraries; on a cluster, two Snakemakes around it
    memory_kb: float  # what one image adds to the memory
    minutes: int  # the time limit of any job, before its images are counted
    ms: float = 0.0  # milliseconds that one pass over one image adds, on one CPU thread or one GPU
    threads: int = 1  # CPUs that a job can use at most, where there is work for them
    thread_mb: int = 0  # memory that each further CPU adds
    gpu: bool = False  # whether the stage computes on a GPU where there is one


@dataclass(frozen=True)
class Job:
    """One planned result of a stage."""

    stage: str
    values: Mapping[str, str] = field(default_factory=dict)  # the wildcards of its place: {"condition": "train-300"}
    # What decides its bytes beside its inputs and the base seed, as JSON values of the stage's options.
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, tuple[Job, ...]] = field(default_factory=dict, repr=False)  # what it is made from, by role
    files: tuple[str, ...] = ()  # the user's files that it reads; a change to one makes the result again
    folders: tuple[str, ...] = ()  # the user's folders: an image that is added or removed makes the result again
    passes: float = 1.0  # how often it looks at each image of its condition
    memory: Callable[[int], float] = lambda images: 0.0  # bytes beyond the stage's `Needs`, by the number of images
    processes: int = 1  # how many share the work
    readers: int = 0  # how many more, beside each of them, read images for it where it uses a GPU
    slower: float = 1.0  # how many times longer a pass takes than the stage's `Needs` say
    parts: float = math.inf  # of its work that can be done side by side, each by one CPU
    longer: float = 1.0  # how many times longer any such job takes, whatever its images
    at: str | None = None  # the folder of a result that another configuration makes; None for one of this plan


@dataclass(frozen=True)
class Stage:
    """One stage: a word, and everything that others need to know of it."""

    name: str  # its one word: folder, module, rule, target, command, kind of artifact and folder of results
    does: str  # one sentence, for `--help`
    # The model of what `--options` takes, or a function that gives it (where extensions add keys).
    options: type[Section] | Callable[[], type[Section]]
    place: str  # the folder of a result, with wildcards in braces; `{root}` is `results/NAME`
    files: tuple[str, ...]  # what each result holds beside its manifest
    # The jobs that a configuration makes of it, given a `granularity.plan.graph.Plan` with those of the stages before.
    plan: Callable[[Any], Iterable[Job]]
    needs: Needs
    message: str  # what Snakemake says of a job, with wildcards
    # Role -> stage that it reads, in the order of the command's options; with `?` where there may be none, `*` where
    # there may be any number.
    inputs: Mapping[str, str] = field(default_factory=dict)
    more_files: tuple[str, ...] = ()  # patterns of what some results hold
    seeded: bool = False  # whether it takes the base seed
    # The extensions that options choose, as pairs of a room of `granularity.base.extensions` and a name; their code
    # counts in the digest of the result.
    chosen: Callable[[Any], Iterable[tuple[str, str]]] = lambda options: ()
    # What the options read that is no result: digests by the path or name of what is read, which tell when the same
    # options give another result. May walk a whole data set: for the job itself, not for planning.
    outside: Callable[[Any], Mapping[str, str]] = lambda options: {}
    # The options as they count in the result's key: without those that another choice would have taken.
    asked: Callable[[Any], Mapping[str, Any]] = lambda options: options.model_dump(mode="json")
    gathers: bool = False  # whether its options hold a whole `configuration`, from which its command finds its inputs
    volatile: bool = False  # whether it holds measured times, so that it is another one each time it is made
    exact: bool = False  # whether its bytes are the same on any processor, with any number of threads
    shows_names: bool = False  # whether names of its inputs are part of its result, as conditions are of a report
    of_study: bool = False  # whether it is made once of a study's cells, and not in each
    priority: int = 0  # jobs of a higher one start first, such as long ones that nothing but the report waits for

    @property
    def model(self) -> type[Section]:
        """The pydantic model of its options."""
        return self.options if isinstance(self.options, type) else self.options()

    def code(self, options: Section) -> tuple[str, ...]:
        """The code that makes a result with these options: dotted modules, and paths of the user's files."""
        return (self.module, *dict.fromkeys(extensions.code(room, name) for room, name in self.chosen(options)))

    @property
    def module(self) -> str:
        """The module that computes it: its `run` takes a :class:`granularity.store.task.Task`."""
        return f"granularity.stages.{self.name}.stage"
