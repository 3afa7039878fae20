"""A job as its stage sees it, and how its result is found in the store or computed."""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.stage import Stage
from granularity.store import lock, place, writer
from granularity.store.artifact import ORIGIN, Artifact, key_of
from granularity.store.code import RESULT_VERSION, code_digest, packages, require_unedited
from granularity.store.writer import Began, Writer


@dataclass(frozen=True)
class Task:
    """A job, the argument of a stage's `run`."""

    stage: Stage
    output: Path  # name of its result: a path that will point to it
    options: Any  # an instance of `stage.model`
    inputs: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # role -> names of artifacts
    seed: int = 0  # the base seed
    device: str = "auto"  # or cpu, cuda
    threads: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)  # see :func:`granularity.machine.device.machine`
    peek: Callable[[Path], Artifact] = Artifact.peek  # reads the manifests of inputs, for their digests
    began: Began | None = None  # when the computation began, for its cost

    @property
    def code(self) -> tuple[str, ...]:
        """The modules and files that compute the result, see :meth:`granularity.base.stage.Stage.code`."""
        return self.stage.code(self.options)

    def states(self, name: str) -> Any:
        """Return an entry of ORIGIN; together they determine the result's bytes, and this is their only definition.

        The key hashes them; `granularity.plan.fresh` compares them to find outdated or adoptable results. `made_from`
        holds the digests of inputs by role (with names, if the stage shows them), `outside` those of files named by
        options; `machine` counts only if sums of floating-point numbers determine the last bits.
        """
        entries = {
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
        return entries[name]()

    @cached_property
    def origin(self) -> dict[str, Any]:
        """All entries of ORIGIN: the first lines of the result's manifest."""
        return {name: self.states(name) for name in ORIGIN}

    def made_from(self, role: str) -> list:
        """Return the digests of the inputs of a role. Raise GranularityError if one is missing."""
        found = [self.peek(path) for path in self.inputs[role]]
        if not self.stage.shows_names:
            return [one.digest for one in found]
        return [[os.path.relpath(one.path, self.output.parent), one.digest] for one in found]

    @property
    def key(self) -> str:
        return key_of(self.origin)

    def origin_of_part(self, options: Mapping[str, Any], made_from: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return :attr:`origin` for a single run that the result will hold; it contains no names of a configuration."""
        return {**self.origin, "options": dict(options), "made_from": {role: [*of] for role, of in made_from.items()}}

    def path(self, role: str) -> Path | None:
        """Return the path of the first artifact of a role, or None."""
        return next(iter(self.paths(role)), None)

    def paths(self, role: str) -> tuple[Path, ...]:
        return self.inputs.get(role, ())

    def open(self, role: str) -> Artifact:
        """Open and verify the only artifact of a role."""
        return Artifact.open(self.paths(role)[0], self.kind(role))

    def open_all(self, role: str) -> list[Artifact]:
        """Open and verify all artifacts of a role."""
        return [Artifact.open(path, self.kind(role)) for path in self.paths(role)]

    def kind(self, role: str) -> str:
        """Return the kind of artifact that a role takes."""
        return self.stage.inputs[role].rstrip("?*")

    def create(
        self,
        inputs: Mapping[str, Artifact],
        params: Mapping[str, Any],
        facts: Sequence[str] = (),
        resumable: bool = False,
    ) -> AbstractContextManager[Writer]:
        """Write this task's result, see :func:`granularity.store.writer.create`."""
        files = (*self.stage.files, *self.stage.more_files)
        return writer.create(self.output, self.origin, inputs, params, facts, resumable, files, self.began)


def make(task: Task) -> Artifact:
    """Find a task's result in the store, or compute it; then point its name to it."""
    for role, paths in task.inputs.items():
        if any(os.path.abspath(path) == os.path.abspath(task.output) for path in paths):
            raise GranularityError(f"{task.output}: the input '{role}' is there; choose another --output")
    run = None
    while (artifact := find(task)) is None:
        # Imported only if there is something to compute: torch takes seconds.
        run = run or importlib.import_module(task.stage.module).run
        require_unedited(*task.code)  # it may have waited for hours
        try:
            run(replace(task, began=writer.began()))
        except lock.LostError as lost:
            say(str(lost))
    return artifact


def find(task: Task) -> Artifact | None:
    """Find a task's result, after waiting for a process that is computing it, and point its name to it; else None."""
    store, kind, key = place.store_of(task.output), task.stage.name, task.key
    if (found := writer.sound(store, kind, key)) is None:
        lock.wait(place.lock_file(store, kind, key), task.output)
        found = writer.sound(store, kind, key)
    if found is not None:
        place.point(task.output, found.folder, kind, found.digest)
        # Saved by a job that died right after publishing, or woke after another had cleaned up.
        place.close_work(place.work_folder(store, kind, key))
    return found
