"""A job as its stage sees it; and its result, which is found in the store or made."""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.stage import Stage
from granularity.store import lock, place, writer
from granularity.store.artifact import ORIGIN, Artifact, key_of
from granularity.store.code import RESULT_VERSION, code_digest, packages
from granularity.store.writer import Writer


@dataclass(frozen=True)
class Task:
    """One job, as a stage's `run` takes it."""

    stage: Stage
    output: Path  # the name of its result: a path that is to lead to it
    options: Any  # an instance of `stage.model`
    inputs: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # role -> names of artifacts
    seed: int = 0  # the base seed
    device: str = "auto"  # or cpu, cuda
    threads: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)  # see :func:`granularity.machine.device.machine`
    peek: Callable[[Path], Artifact] = Artifact.peek  # how the digests of its inputs are found

    @property
    def code(self) -> tuple[str, ...]:
        """The code that makes the result, see :meth:`granularity.base.stage.Stage.code`."""
        return self.stage.code(self.options)

    def states(self, name: str) -> Any:
        """What decides the bytes of the result, by the names of ORIGIN: the one statement of what a result is.

        Its key is over it, and what is out of date, or can be adopted, is held against it (granularity.plan.fresh).
        `made_from` has the digests of the inputs by role (with their names, where the stage shows those), `outside`
        those of files that the options name; `machine` counts where sums of floating-point numbers decide last bits.
        """
        of = {
            "kind": lambda: self.stage.name,
            "schema_version": lambda: RESULT_VERSION,
            "options": lambda: dict(self.stage.asked(self.options)),
            "made_from": lambda: {role: self.made_from(role) for role, paths in self.inputs.items() if paths},
            "seed": lambda: self.seed if self.stage.seeded else None,
            "outside": lambda: dict(self.stage.outside(self.options)),
            "machine": lambda: {} if self.stage.exact else dict(self.machine),
            "code": lambda: {"modules": list(self.code), "digest": code_digest(*self.code)},
            "packages": lambda: packages(*self.code),
        }
        return of[name]()

    @cached_property
    def origin(self) -> dict[str, Any]:
        """All of it: the first lines of the result's manifest."""
        return {name: self.states(name) for name in ORIGIN}

    def made_from(self, role: str) -> list:
        """The digests of the inputs of a role; a GranularityError where one is not there."""
        found = [self.peek(path) for path in self.inputs[role]]
        if not self.stage.shows_names:
            return [one.digest for one in found]
        return [[os.path.relpath(one.path, self.output.parent), one.digest] for one in found]

    @property
    def key(self) -> str:
        return key_of(self.origin)

    def origin_of_part(self, options: Mapping[str, Any], made_from: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """As :attr:`origin`, of a single run that the result is to hold; it has no names of a configuration."""
        return {**self.origin, "options": dict(options), "made_from": {role: [*of] for role, of in made_from.items()}}

    def path(self, role: str) -> Path | None:
        """The one artifact of a role; None where there is none."""
        return next(iter(self.paths(role)), None)

    def paths(self, role: str) -> tuple[Path, ...]:
        return self.inputs.get(role, ())

    def open(self, role: str) -> Artifact:
        """The one artifact of a role, verified."""
        return Artifact.open(self.path(role), self.kind(role))

    def open_all(self, role: str) -> list[Artifact]:
        """All artifacts of a role, verified."""
        return [Artifact.open(path, self.kind(role)) for path in self.paths(role)]

    def kind(self, role: str) -> str:
        """The kind of artifact that a role takes."""
        return self.stage.inputs[role].rstrip("?*")

    def create(self, *of: Any, **how: Any) -> AbstractContextManager[Writer]:
        """:func:`granularity.store.writer.create` of this task's result: inputs, params, facts, resumable."""
        return writer.create(self.output, self.origin, *of, **how, files=(*self.stage.files, *self.stage.more_files))


def make(task: Task) -> Artifact:
    """Find a task's result in the store, or make it; then let its name lead to it."""
    for role, paths in task.inputs.items():
        if any(os.path.abspath(path) == os.path.abspath(task.output) for path in paths):
            raise GranularityError(f"{task.output}: the input '{role}' lies there; choose another --output")
    run = None
    while (found := find(task)) is None:
        # Imported only where there is something to compute: torch takes seconds.
        run = run or importlib.import_module(task.stage.module).run
        try:
            run(task)
        except lock.LostError as lost:
            say(str(lost))
    return found


def find(task: Task) -> Artifact | None:
    """Find a task's result, waiting for whoever is making it, and let its name lead to it; None where there is none."""
    store, kind, key = place.store_of(task.output), task.stage.name, task.key
    if (found := writer.sound(store, kind, key)) is None:
        lock.wait(place.lock_file(store, kind, key), task.output)
        found = writer.sound(store, kind, key)
    if found is not None:
        place.point(task.output, found.folder, kind, found.digest)
        # What a job saved that died just after publishing, or that woke just after another one had tidied up.
        place.close_work(place.work_folder(store, kind, key))
    return found
