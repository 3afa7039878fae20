"""A job as its stage sees it: options, paths of its inputs, the place of its result, and the machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from granularity.base.stage import Stage
from granularity.store import artifacts
from granularity.store.artifacts import Artifact, Writer


@dataclass(frozen=True)
class Task:
    """One job, as a stage's `run` takes it.

    Attributes:
        stage: the stage's record.
        output: the folder of its artifact, or the manifest in it.
        options: an instance of `stage.model`.
        inputs: role -> folders of artifacts.
        seed: the base seed.
        device: auto, cpu or cuda.
        threads: CPU threads.
    """

    stage: Stage
    output: Path
    options: Any
    inputs: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    threads: int = 1

    @property
    def code(self) -> tuple[str, ...]:
        """The code that makes the result, see :meth:`granularity.base.stage.Stage.code`."""
        return self.stage.code(self.options)

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
        self, inputs: Mapping[str, Artifact], params: Mapping[str, Any], resumable: bool = False, shared: bool = False
    ) -> AbstractContextManager[Writer]:
        """:func:`granularity.store.artifacts.create` of this task's result."""
        return artifacts.create(
            self.output,
            self.stage.name,
            self.code,
            dict(inputs),
            dict(params),
            resumable,
            shared,
            files=(*self.stage.files, *self.stage.more_files),
            options=self.options.model_dump(mode="json"),
        )
