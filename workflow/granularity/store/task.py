"""A job as its stage sees it: options, paths of its inputs, the name of its result, and the machine."""

from __future__ import annotations

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
from granularity.store import cache, claim, generations, writer
from granularity.store.artifacts import Artifact, key_of
from granularity.store.code import RESULT_VERSION, code_digest, packages
from granularity.store.writer import Writer


@dataclass(frozen=True)
class Task:
    """One job, as a stage's `run` takes it.

    Attributes:
        stage: the stage's record.
        output: the name of its result: a path that is to lead to it.
        options: an instance of `stage.model`.
        inputs: role -> names of artifacts.
        seed: the base seed.
        device: auto, cpu or cuda.
        threads: CPU threads.
        machine: what of this machine decides last bits, see :func:`granularity.machine.device.machine`.
    """

    stage: Stage
    output: Path
    options: Any
    inputs: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    threads: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> tuple[str, ...]:
        """The code that makes the result, see :meth:`granularity.base.stage.Stage.code`."""
        return self.stage.code(self.options)

    @cached_property
    def origin(self) -> dict[str, Any]:
        """Everything that decides the bytes of the result: the first lines of its manifest, and what its key is over.

        `options`, as they count; `made_from`, the digests of the inputs by role (with their names, where the stage
        shows those); `outside`, digests of files that the options name; `code`; `packages`, the versions of those that
        the code imports; `machine`, where sums of floating-point numbers decide last bits.
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

    @cached_property
    def key(self) -> str:
        """The key of the result."""
        return key_of(self.origin)

    def origin_of_part(self, options: Mapping[str, Any], made_from: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """As :attr:`origin`, of a single run that the result is to hold; it has no names of a configuration."""
        return {**self.origin, "options": dict(options), "made_from": {role: [*of] for role, of in made_from.items()}}

    def path(self, role: str) -> Path | None:
        """The one artifact of a role; None where there is none."""
        found = self.inputs.get(role, ())
        return found[0] if found else None

    def paths(self, role: str) -> tuple[Path, ...]:
        """All artifacts of a role."""
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

    def create(
        self,
        inputs: Mapping[str, Artifact],
        params: Mapping[str, Any],
        facts: Sequence[str] = (),
        resumable: bool = False,
    ) -> AbstractContextManager[Writer]:
        """:func:`granularity.store.writer.create` of this task's result."""
        files = (*self.stage.files, *self.stage.more_files)
        return writer.create(self.output, self.origin, inputs, params, facts, resumable, files)


def make(task: Task) -> Artifact:
    """Find a task's result in the store or the shared cache, or make it; then let its name lead to it.

    Raises:
        GranularityError: an input lies where the result is to be, or what the stage raises.
    """
    for role, paths in task.inputs.items():
        if any(os.path.abspath(path) == os.path.abspath(task.output) for path in paths):
            raise GranularityError(f"{task.output}: the input '{role}' lies there; choose another --output")
    run = None
    while (found := find(task)) is None:
        # Imported only where there is something to compute: torch takes seconds.
        run = run or importlib.import_module(task.stage.module).run
        try:
            run(task)
        except claim.LostError as lost:
            say(str(lost))
    return found


def find(task: Task) -> Artifact | None:
    """Find a task's result, waiting for whoever is making it, and let its name lead to it; None where there is none."""
    store, kind, key = generations.store_of(task.output), task.stage.name, task.key
    if (found := writer.sound(store, kind, key)) is None:
        claim.wait(store, kind, key, task.output)
        found = writer.sound(store, kind, key)
    if found is None and task.stage.shared:
        found = cache.fetch(store, kind, key)
    elif found is not None and task.stage.shared:
        cache.store(found)
    if found is not None:
        generations.point(task.output, found.folder, kind, found.digest)
        # What a job saved that died just after publishing, or that woke just after another one had tidied up.
        generations.close_work(generations.work_folder(store, kind, key))
    return found
