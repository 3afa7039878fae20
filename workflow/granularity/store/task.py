"""A job as its stage sees it; and its result, which is found in the store or made."""

import importlib
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.stage import Stage
from granularity.store import lock, place, writer
from granularity.store.artifact import Artifact, key_of
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

    @property
    def code(self) -> tuple[str, ...]:
        """The code that makes the result, see :meth:`granularity.base.stage.Stage.code`."""
        return self.stage.code(self.options)

    @cached_property
    def origin(self) -> dict[str, Any]:
        """Everything that decides the bytes of the result: the first lines of its manifest, and what its key is over.

        `made_from` has the digests of the inputs by role (with their names, where the stage shows those), `outside`
        those of files that the options name; `machine` counts where sums of floating-point numbers decide last bits.
        """
        return {
            "kind": self.stage.name,
            "schema_version": RESULT_VERSION,
            "options": dict(self.stage.asked(self.options)),
            "made_from": {role: self._made_from(paths) for role, paths in self.inputs.items() if paths},
            "seed": self.seed if self.stage.seeded else None,
            "outside": dict(self.stage.outside(self.options)),
            "machine": {} if self.stage.exact else dict(self.machine),
            "code": {"modules": list(self.code), "digest": code_digest(*self.code)},
            "packages": packages(*self.code),
        }

    def _made_from(self, paths: Sequence[Path]) -> list:
        found = [Artifact.peek(path) for path in paths]
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
