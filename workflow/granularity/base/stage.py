"""What a stage declares of itself, once, and what a configuration plans of it.

Each folder in ``stages/`` declares one :class:`Stage`; the table of them is :data:`granularity.stages.STAGES`. Paths,
commands, rules, status and resources loop over that table, and no other place knows a fact of a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from granularity.base import extensions
from granularity.base.section import Section


@dataclass(frozen=True)
class Needs:
    """Needs of a job's first attempt: what it asks of a machine.

    Attributes:
        memory_mb: what any job of the stage takes: Python with its libraries; on a cluster, two Snakemakes around it.
        memory_kb: what one image adds to the memory.
        minutes: the time limit of any job of the stage, before its images are counted.
        ms: milliseconds that one pass over one image adds, on one CPU thread or one GPU.
        threads: CPU threads where there are many images; 1 where the number of threads decides last bits.
        gpu: whether the stage computes on a GPU where there is one.
    """

    memory_mb: int
    memory_kb: float
    minutes: int
    ms: float = 0.0
    threads: int = 1
    gpu: bool = False


@dataclass(frozen=True)
class Job:
    """One planned result of a stage.

    Attributes:
        stage: the stage's name.
        values: the wildcards of its place, such as ``{"condition": "train-300", "clustering": "whole-30"}``.
        options: what decides its bytes beside its inputs and the base seed, as JSON values of the stage's options.
        inputs: the jobs it is made from, by role.
        files: the user's files that it reads; a change to one makes the result again.
        folders: the user's folders whose entries decide the result: an image that is added or removed makes it again.
        passes: how often it looks at each image of its condition.
        memory: bytes of main memory beyond what the stage's `Needs` say, given the number of images.
        processes: how many share the work.
        readers: how many more, beside each of them, read images for it where it uses a GPU.
        slower: how many times longer a pass takes than the stage's `Needs` say.
        longer: how many times longer any such job takes, whatever its images.
        at: the folder of a result that another configuration makes; None for one of this plan.
    """

    stage: str
    values: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, tuple[Job, ...]] = field(default_factory=dict, repr=False)
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    passes: float = 1.0
    memory: Callable[[int], float] = lambda images: 0.0
    processes: int = 1
    readers: int = 0
    slower: float = 1.0
    longer: float = 1.0
    at: str | None = None


@dataclass(frozen=True)
class Stage:
    """One stage: a word, and everything that others need to know of it.

    Attributes:
        name: its one word: folder, module, rule, target, command, kind of artifact and folder of results.
        does: one sentence, for `--help`.
        options: the model of what `--options` takes, or a function that gives it (where extensions add keys).
        place: the folder of a result, with wildcards in braces; `{root}` is `results/NAME`.
        files: what each result holds beside its manifest.
        more_files: patterns of what some results hold.
        inputs: role -> stage that it reads, in the order of the command's options; `?` behind it where there may be
            none, `*` where there may be any number.
        plan: the jobs that a configuration makes of it, given a :class:`granularity.plan.graph.Plan` that holds those
            of the stages before.
        needs: what the first attempt of a job asks of a machine.
        message: what Snakemake says of a job, with wildcards.
        seeded: whether it takes the base seed.
        chosen: the extensions that options choose, each as a room of :mod:`granularity.base.extensions` and a name;
            their code counts in the digest of the result.
        outside: what the options read that is no result: digests by the path or name of what is read, which tell when
            the same options give another result. May walk a whole data set: for the job itself, not for planning.
        asked: the options as they count in the result's key: without those that another choice would have taken.
        gathers: whether its options hold a whole `configuration`, from which its command finds its many inputs.
        volatile: whether it holds measured times, so that it is another one each time it is made.
        exact: whether its bytes are the same on any processor, with any number of threads.
        shared: whether a cache that several people use may serve it.
        shows_names: whether the names of its inputs are part of its result, as conditions are of a report.
        priority: jobs of a higher one start first, such as long ones that nothing but the report waits for.
    """

    name: str
    does: str
    options: type[Section] | Callable[[], type[Section]]
    place: str
    files: tuple[str, ...]
    plan: Callable[[Any], Iterable[Job]]
    needs: Needs
    message: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    more_files: tuple[str, ...] = ()
    seeded: bool = False
    chosen: Callable[[Any], Iterable[tuple[str, str]]] = lambda options: ()
    outside: Callable[[Any], Mapping[str, str]] = lambda options: {}
    asked: Callable[[Any], Mapping[str, Any]] = lambda options: options.model_dump(mode="json")
    gathers: bool = False
    volatile: bool = False
    exact: bool = False
    shared: bool = False
    shows_names: bool = False
    priority: int = 0

    @property
    def model(self) -> type[Section]:
        """The pydantic model of its options."""
        return self.options if isinstance(self.options, type) else self.options()

    def code(self, options: Section) -> tuple[str, ...]:
        """The code that makes a result with these options: dotted modules, and paths of the user's files."""
        return (self.module, *(extensions.code(room, name) for room, name in self.chosen(options)))

    @property
    def module(self) -> str:
        """The module that computes it: its `run` takes a :class:`granularity.store.task.Task`."""
        return f"granularity.stages.{self.name}.stage"
